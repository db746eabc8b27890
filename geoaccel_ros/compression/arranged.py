"""Values of a cloud's points in their coding order, gathered only as far as they are looked at."""

import numpy as np
import pyopencl as cl

from geoaccel_ros.compression.device import Device


class Arranged:
    """A field's integers, which the device gathers and the host takes samples of.

    Parameters
    ----------
    values : ndarray, shape (N,), int32 or int64
        In the order of the cloud.
    order : ndarray, shape (N,), integer, or None
        Which of them is the i-th; None: the i-th.
    """

    def __init__(self, values: np.ndarray, order: np.ndarray | None = None):
        self._values = values
        self._order = order

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: np.ndarray | slice | int) -> np.ndarray:
        return self._values[index if self._order is None else self._order[index]]

    def all(self) -> np.ndarray:
        """Return all values, (N,)."""
        return self._values if self._order is None else np.take(self._values, self._order)

    def upload(self, device: Device, name: str, gather: dict[int, cl.Kernel]) -> cl.Buffer:
        """Return them as the buffer of this name, int64 (N,).

        Parameters
        ----------
        device : Device
        name : str
        gather : dict of int to Kernel
            gather_values of attributes.cl for values of so many bytes.
        """
        count, itemsize = len(self._values), self._values.itemsize
        if self._order is None and itemsize == 8:
            return device.upload(name, self._values)
        values = device.upload("values_of_cloud", self._values)
        order = values
        if self._order is not None:
            order = device.upload("order_of_values", self._order.astype(np.uint32, copy=False))
        gathered = device.buffer(name, 8 * count)
        device.launch(gather[itemsize], count, values, self._order is None, order, count, gathered)
        return gathered
