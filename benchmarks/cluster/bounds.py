"""What no schedule can do better (pure)."""

from collections.abc import Sequence

from .job import Wants


def most_trained(jobs: Sequence[Wants], cpus: int, until: float) -> float:
    """CPU-seconds that `cpus` CPUs can have trained `until` then under any schedule, if nothing has a cost.

    Whatever the moment s, until s no more can be trained than was submitted before it, and after it no more than all
    CPUs train: the least of these sums. That each job has a maximum of nodes is not looked at, so it is a bound above
    what can be had.
    """
    submitted = 0.0
    least = cpus * until
    for job in sorted(jobs, key=lambda one: one.at):
        if job.at >= until:
            break
        least = min(least, submitted + cpus * (until - job.at))
        submitted += job.work
    return min(least, submitted)


def two_in_a_row(first: Wants, second: Wants, cpus: int, second_gets: int) -> float:
    """When both of two jobs are done, seconds, if nothing has a cost and training is linear.

    The first has all that it may until the second comes; from then on the second has `second_gets` and the first what
    is left; a job that is alone has all that it may.

    Args:
        second_gets: CPUs of the second while the first is there.
    """
    most = [min(cpus, each.most * each.cpu) for each in (first, second)]
    left = [first.work - second.at * most[0], second.work]
    if left[0] <= 0:
        return second.at + left[1] / most[1]
    rates = [min(most[0], cpus - second_gets), min(most[1], second_gets)]
    both = min(left[place] / rates[place] for place in (0, 1) if rates[place])
    left = [left[place] - both * rates[place] for place in (0, 1)]
    last = 0 if left[0] > left[1] else 1
    return second.at + both + left[last] / most[last]
