"""Values of a histogram or a counter at the next scrape."""

from __future__ import annotations

from prometheus_client import Counter, Histogram


def observed(histogram: Histogram) -> dict[str, tuple[float, float]]:
    """Return count and sum of the observations by label; without labels the key is ""."""
    counts: dict[str, float] = {}
    sums: dict[str, float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            if sample.name.endswith("_count"):
                counts[labels] = sample.value
            elif sample.name.endswith("_sum"):
                sums[labels] = sample.value
    return {labels: (count, sums[labels]) for labels, count in counts.items()}


def counted(counter: Counter) -> dict[str, float]:
    """Return the counter's value by label."""
    return {
        ",".join(sample.labels.values()): sample.value
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
