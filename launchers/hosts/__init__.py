"""The checkout and its environment on every host of a host file, in one command.

`goal` says what is to be there, `commands` holds what is run on a host, `needs` decides which steps
a host needs; `set_up` runs them, `hosts_command` shows how it goes.
"""
