"""Placed: a data set whose samples come with their places, for remedies that weight samples."""

from typing import Any

from torch.utils.data import Dataset, Subset

PLACE = "place_in_training_data"  # the name of the place, where a sample is a dict


class Placed(Dataset[Any]):
    """Adds its place to every sample of a data set.

    Args:
        whole: A map-style data set. Its samples are dicts or tuples. In a subset, places are those
            of the data that it is taken from.

    >>> Placed([(1.0, 0), (2.0, 1)])[1]
    (2.0, 1, 1)
    >>> Placed([{"x": 1.0}])[0]
    {'x': 1.0, 'place_in_training_data': 0}
    """

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, number: int) -> Any:
        sample, place = self.whole[number], int(number)
        part = self.whole
        while isinstance(part, Subset):
            place, part = int(part.indices[place]), part.dataset
        return {**sample, PLACE: place} if hasattr(sample, "keys") else (*sample, place)
