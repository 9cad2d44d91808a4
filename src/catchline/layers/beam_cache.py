"""Self-attention in beam search without moving the past.

The usual cache holds the keys and values of each beam's own past; when beams are re-ordered, all of it is copied,
and once more when a step is added. Here the past belongs to the document. Every step leaves one *slot* a beam,
which is never moved, and each row has a mask of the slots that lie on its path. Re-ordering beams re-orders these
masks. In a step the K beams of a document are K queries into the same slots, as they are into its memory.

Slots that lie on no path any more are dropped when room runs out. Beams soon share most of their past, so
there are not many more live slots than steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from catchline.layers.transformer import scaled_attention

_FIRST_STEPS = 16  # room that is made at first, in steps


class _Room:
    """Keys and values (2, B, C, H, d) of one layer; the first ``filled`` of its C slots are taken."""

    def __init__(self, slots: Tensor, filled: int) -> None:
        self.slots, self.filled = slots, filled

    def extended(self, size: int, keys: Tensor, values: Tensor, capacity: int) -> _Room:
        """Put (B, K, H, d) keys and values behind the first ``size`` slots.

        In place where nobody has done so before, so that a state from which two steps are made gives both what
        they should get. Under gradients nothing is written in place.
        """
        end = size + keys.shape[1]
        if torch.is_grad_enabled():
            return _Room(torch.cat([self.slots[:, :, :size], torch.stack([keys, values])], dim=2), end)
        room = self
        if self.filled != size or self.slots.shape[2] < end:
            slots = keys.new_empty(2, keys.shape[0], max(capacity, end), *keys.shape[2:])
            slots[:, :, :size] = self.slots[:, :, :size]
            room = _Room(slots, size)
        room.slots[0, :, size:end], room.slots[1, :, size:end] = keys, values
        room.filled = end
        return room

    def picked(self, order: Tensor) -> _Room:
        """The slots ``order`` (B, M) of each document."""
        index = order[None, :, :, None, None].expand(2, -1, -1, *self.slots.shape[3:])
        return _Room(self.slots.gather(2, index), order.shape[1])


class BeamCache:
    """The decoder's past: part of a decoder state, which search re-orders by `select` and `select_documents`.

    ``visible`` (N, M) says which slots of its document a row may look at; ``steps`` counts the steps made.
    """

    def __init__(self, rooms: list[_Room], visible: Tensor, documents: int, steps: int, capacity: int = 0) -> None:
        self._rooms, self.visible, self.documents, self.steps = rooms, visible, documents, steps
        self._capacity = capacity

    @classmethod
    def empty(cls, num_layers: int, like: Tensor) -> BeamCache:
        """No past: ``like`` (B, S, H, d) are keys of the same sizes."""
        slots = like.new_empty(2, like.shape[0], 0, *like.shape[2:])
        visible = torch.zeros(like.shape[0], 0, dtype=torch.bool, device=like.device)
        return cls([_Room(slots, 0) for _ in range(num_layers)], visible, like.shape[0], 0)

    def with_step(self) -> BeamCache:
        """The cache for one more step: each row sees its own new slot, which `attend` fills layer by layer."""
        cache = self._with_room()
        beams = cache.visible.shape[0] // cache.documents
        own = torch.eye(beams, dtype=torch.bool, device=cache.visible.device).repeat(cache.documents, 1)
        visible = torch.cat([cache.visible, own], dim=1)
        return BeamCache(list(cache._rooms), visible, cache.documents, cache.steps + 1, cache._capacity)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, dropout: float = 0.0) -> Tensor:
        """Self-attention of one step: (B, K, H, d) three times -> (B, K, H, d)."""
        size = self.visible.shape[1]
        room = self._rooms[layer].extended(size - keys.shape[1], keys, values, self._capacity)
        self._rooms[layer] = room
        mask = self.visible.view(self.documents, 1, -1, size)
        return scaled_attention(queries, *room.slots[:, :, :size], mask=mask, dropout=dropout)

    def select(self, index: Tensor) -> BeamCache:
        """The rows ``index`` (M,); documents stay where they are."""
        return BeamCache(self._rooms, self.visible[index], self.documents, self.steps, self._capacity)

    def select_documents(self, document_index: Tensor, beams: int) -> BeamCache:
        """The documents ``document_index`` (D,) with all their rows."""
        rooms = [_Room(room.slots.index_select(1, document_index), room.filled) for room in self._rooms]
        visible = self.visible.view(self.documents, beams, -1).index_select(0, document_index).flatten(0, 1)
        return BeamCache(rooms, visible, document_index.shape[0], self.steps, self._capacity)

    def _with_room(self) -> BeamCache:
        """Itself, or, where the next step does not fit, without the slots that nobody sees and with more room."""
        rows, size = self.visible.shape
        beams = rows // self.documents
        if size + beams <= self._capacity or torch.is_grad_enabled():
            return self
        seen = self.visible.view(self.documents, beams, size)
        live = seen.any(dim=1)
        count = int(live.sum(dim=1).max()) if size else 0
        if 2 * count > size:
            return BeamCache(self._rooms, self.visible, self.documents, self.steps, max(2 * size, _FIRST_STEPS * beams))
        order = live.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :count]
        visible = seen.gather(2, order.unsqueeze(1).expand(-1, beams, -1)).flatten(0, 1)
        rooms = [room.picked(order) for room in self._rooms]
        return BeamCache(rooms, visible, self.documents, self.steps, max(self._capacity, 2 * (count + beams)))
