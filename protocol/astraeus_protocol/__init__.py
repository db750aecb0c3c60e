"""What monitor, controller and command line agree on: settings, wire records, files, signing.

Imports go one way: this package imports nothing else of Astraeus; the monitor, the controller and the
command line import it and never each other.
"""

VERSION = "0.1.0"
"""Version of the distribution; every report and every line the plugin writes carries it."""

WIRE = 1
"""Version of the report and reply. A controller takes this one and the one before."""
