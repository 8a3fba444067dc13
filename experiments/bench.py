"""bench"""


def run_bench(*a):
    return ""
