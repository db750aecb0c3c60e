"""What is live: nodes, jobs, steps and workers, out of reports and Slurm's own word, without I/O or a clock.

``fleet`` takes what comes in; ``state`` holds the records, ``ties`` who is tied to whom, ``time`` ages and
suspensions; ``view`` makes the frozen picture that the rules look at, ``watch`` says who is watched.
"""

from .fleet import Fleet

__all__ = ["Fleet"]
