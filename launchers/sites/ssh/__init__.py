"""Hosts that are reached by ssh: cloud instances, workstations, anything without a scheduler.

`hostfile` reads the list of hosts, `command_line` says what is run on them and what its failure
means; `ssh_site` holds the lines to them.
"""
