"""What is wrong with the hosts, before they cost hours: the command `doctor`.

`gather` asks the hosts for facts; each of the `checks` is a function from these to findings, which
are shown as a table.  No host trains, and nothing is left behind but copies of the files of a model
that was to be built.
"""
