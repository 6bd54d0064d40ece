"""How many there are of something, in words."""


def plural(number: int, name: str) -> str:
    """Such as "1 node", "2 nodes"."""
    return f"{number} {name}{'s' if number != 1 else ''}"
