"""How many there are of something, or which, in words."""

from collections.abc import Sequence


def plural(number: int, name: str) -> str:
    """Such as "1 node", "2 nodes"."""
    return f"{number} {name}{'s' if number != 1 else ''}"


def ranks(numbers: Sequence[int]) -> str:
    """Some ranks, for a sentence: `ranks 0-2, 5`."""
    spans = list[list[int]]()
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:8]]
    more = f" and {sum(b - a + 1 for a, b in spans[8:])} more" if len(spans) > 8 else ""
    return f"{'rank' if len(set(numbers)) == 1 else 'ranks'} {', '.join(shown)}{more}"
