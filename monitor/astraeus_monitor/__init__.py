"""The node's monitor: one process per node, one watch per step. Imports only astraeus_protocol."""
