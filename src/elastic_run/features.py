"""Features: what columns of records become for a model in four functions, declared in one place.

    features = Features(age=Numeric(), price=Numeric(log=True), city=Category(), user=Category(hash=100_000))
    label = "click"

In a model file this stands for `feed`. What it needs to know of the data is found in one pass before training.
"""

from .adapters.features.declared import Category, Cross, Features, IdSequence, Numeric, Words
from .adapters.features.serving import FittedFeatures

__all__ = ["Category", "Cross", "Features", "FittedFeatures", "IdSequence", "Numeric", "Words"]


def __dir__() -> list[str]:
    return sorted(__all__)
