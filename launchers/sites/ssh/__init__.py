"""Hosts that are reached by ssh: cloud instances, workstations, whatever is not scheduled.

Decides nothing itself.  `hostfile` reads the list of hosts, `words` says what is run on them,
`server` holds the line to one of them, `sentences` says what went wrong with it; `site` is what the
launcher uses.
"""
