"""What the suite relies on in TensorFlow although TensorFlow does not publish it, and nothing else.

`texts` holds names and texts and imports no TensorFlow; `private_api` imports it.
"""

#: The version that every item here was checked with.
CHECKED_WITH = "2.21"
