"""What is wrong with the hosts, before they cost hours: the command `doctor`.

`gather` asks the hosts for facts; each of the `checks` is a function from these to `findings`,
which are shown as a table.  Nothing is trained, and nothing is left behind.
"""
