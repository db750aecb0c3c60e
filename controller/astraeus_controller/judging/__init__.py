"""From pictures to findings: ``pass_`` holds what the rules conclude against the findings that are open,
``progress`` says what ends one, ``loop`` runs both over the fleet and carries out what changes.

``pass_`` and ``progress`` do no I/O; a replay runs them without ``loop``.
"""
