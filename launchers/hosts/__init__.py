"""The checkout and its environment on every host of a host file, in one command.

`goal` says what is to be there, `needs` decides which steps a host needs and what is run for them;
`set_up` runs it, `hosts_command` shows how it goes.
"""
