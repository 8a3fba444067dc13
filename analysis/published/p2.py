"""The study of Amazon's p2 instances: its numbers, and what sets the sweep `p2` apart from it."""

from __future__ import annotations

from functools import partial

from analysis.published.beside import PublishedCurve, placed, show_curves
from analysis.published.study import PublishedStudy
from ps_allreduce.point.placement import Policy

SERIES = {
    "here, round robin": placed(Policy.ROUND_ROBIN),
    "here, partitioned": placed(Policy.PARTITIONED),
}

CURVES = (
    PublishedCurve(
        system="published: p2.xlarge, a worker per host",
        csv="p2.xlarge.csv",
        series=SERIES,
        workers_per_host=1,
    ),
    PublishedCurve(
        system="published: p2.8xlarge, eight workers per host",
        csv="p2.8xlarge.csv",
        series=SERIES,
        workers_per_host=8,
    ),
)

P2 = PublishedStudy(
    name="p2",
    source="Bugliarello, Distributed TensorFlow: A performance evaluation, CSCS 2017; "
    "github.com/e-bug/distributed-tensorflow-benchmarks, InceptionV3, batch 64, synthetic images, "
    "TensorFlow 1.1, mean of 5 runs.",
    differences=(
        "The original ran on instances of Amazon with a K80 for each worker; the instances with "
        "eight workers have faster links than those with one. Here all links are alike.",
        "It searched for the best number of servers; here every host has one.",
        "Its mode distributed_replicated keeps variables on each GPU and adds gradients up on the "
        "host; here the workers of a host send one mean gradient and fetch new values once.",
        "It sent every variable by itself; here variables travel in buckets.",
        "In the small form all hosts share the cores of one machine, so what real images cost is "
        "measured with one worker and with eight on one host only.",
    ),
    show=partial(show_curves, CURVES),
)
