"""The settings of the loop."""

from dataclasses import dataclass, field


@dataclass
class Settings:
    width: int = 16
    steps: int = 2
    names: list[str] = field(default_factory=list[str])
