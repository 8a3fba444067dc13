"""What is wrong with the hosts, before they cost hours: the command `doctor`.

`gather` asks the hosts for `facts`; the checks in `checks_*` judge them, each a function from facts
to findings; `render` shows what they found.  Nothing is trained, and nothing is left behind.
"""
