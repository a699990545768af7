"""Any interaction of PyKEEN as a model, by autograd: `pykeen:HolE`, `pykeen:TuckER`, `pykeen:ConvE` and so on.

What an interaction holds besides entities and relations (a core tensor, convolutions) belongs to the client, like its
relations: it is a table of one row here, trained with the rest, and it never leaves. PyKEEN's models add constraints to
some interactions (unit quaternions for QuatE, say); these are not part of the interaction, and not applied.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from pykeen.nn.modules import NormBasedInteraction, interaction_resolver

from fedlu.embedding.kernels import Floats
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import Rows
from fedlu.errors import InputError

SMALL_SIZES = {"k": 4, "s": 1}
"""The letters in PyKEEN's shapes that are not the dimension: quaternion parts, slices; scales."""
COMPARED_AT_ONCE = 1 << 22
"""How many numbers of candidates are expanded at a time while ranking."""


def shape_without_numbers(name: str, dimension: int) -> tuple[int, int, int, int]:
    """The widths of entities and relations, how many numbers of its own, and how many are needed for each score of a
    batch, without room for any of them."""
    with contextlib.suppress(InputError):
        make_interaction(name, 32)  # PyKEEN keeps some constants once made: they are to be made of real numbers
    with torch.device("meta"):
        interaction = make_interaction(name, dimension)
    parts = 2 if interaction.is_complex else 1
    widths = [
        parts * sum(math.prod(_sizes(shape, dimension)) for shape in shapes)
        for shapes in (interaction.entity_shape, interaction.relation_shape)
    ]
    own = sum(weight.numel() for weight in interaction.parameters())
    kept = max(_kept_for_a_score(interaction, dimension, side) for side in Side)
    return widths[0], widths[1], own, max(kept + kept // 3, 3 * widths[0])  # a third more on the way back, of ConvE


def _kept_for_a_score(interaction: Any, dimension: int, side: Side) -> int:
    """How many numbers autograd keeps for its way back: by two batches of tensors without numbers, one larger."""

    def kept(candidates: int) -> int:
        found = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal found
            found += tensor.numel() * (2 if tensor.is_complex() else 1)
            return tensor

        def rows(shapes: Sequence[str], columns: int) -> list[torch.Tensor]:
            kind = torch.cfloat if interaction.is_complex else torch.float
            sizes = [(2, columns, *_sizes(shape, dimension)) for shape in shapes]
            return [torch.zeros(size, dtype=kind, device="meta", requires_grad=True) for size in sizes]

        anchors, answers = rows(interaction.entity_shape, 1), rows(interaction.entity_shape, candidates)
        heads, tails = (anchors, answers) if side == Side.TAIL else (answers, anchors)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            interaction(
                h=_unpack([heads[i] for i in interaction.head_indices]),
                r=_unpack(rows(interaction.relation_shape, 1)),
                t=_unpack([tails[i] for i in interaction.tail_indices]),
            )
        return found

    try:
        return (kept(6) - kept(2)) // (2 * (6 - 2))
    except (RuntimeError, ValueError, AttributeError, TypeError, IndexError):  # it does not fit, and is refused as such
        return 0


class PykeenScorer:
    def __init__(self, name: str, dimension: int, seed: int, device: str = "cpu"):
        self.device = device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.interaction = make_interaction(name, dimension).to(device)
        self.is_complex = bool(self.interaction.is_complex)
        self.entity_shapes = [_sizes(shape, dimension) for shape in self.interaction.entity_shape]
        self.relation_shapes = [_sizes(shape, dimension) for shape in self.interaction.relation_shape]
        self._weights = list(self.interaction.parameters())
        flat = [weight.detach().cpu().reshape(-1) for weight in self._weights]
        self.parameters = Table(torch.cat(flat).numpy()[None, :].copy()) if flat else None  # (1, numbers)
        self._gradient: Floats | None = None
        self._loaded: tuple[Floats, int] | None = None
        self._try(name)

    def _try(self, name: str) -> None:
        """A few rows forth and back, so that an interaction that does not fit is refused now and not in a round."""
        widths = (self.entity_width, self.relation_width, self.entity_width, self.entity_width)
        anchors, relations, answers, negatives = (np.full((2, width), 0.1, dtype=np.float32) for width in widths)
        rows = Rows(anchors, relations, answers, negatives)
        before = self.state()
        try:
            for side in Side:
                scores, back = self.forward(rows, side)
                back(np.ones_like(scores))
        except (RuntimeError, ValueError, AttributeError, TypeError, IndexError) as bad:
            reason = str(bad).splitlines()[0][:120]
            raise InputError(f"pykeen:{name} does not fit ({reason})", remedy="choose another model") from bad
        self.restore(before)
        self._gradient = None

    @property
    def entity_width(self) -> int:
        return sum(map(math.prod, self.entity_shapes)) * (2 if self.is_complex else 1)

    @property
    def relation_width(self) -> int:
        return sum(map(math.prod, self.relation_shapes)) * (2 if self.is_complex else 1)

    def forward(self, rows: Rows, side: Side) -> tuple[Floats, Callable[[Floats], Rows]]:
        self._load()
        self.interaction.train(len(rows.anchors) > 1)  # one query has no mean and deviation of its own to learn by
        arrays = (rows.anchors, rows.relations, rows.answers, rows.negatives)
        leaves = [torch.from_numpy(each).to(self.device).requires_grad_() for each in arrays]
        anchors, relations, answers, negatives = leaves
        chosen = negatives[None] if rows.picks is None else negatives[torch.from_numpy(rows.picks).long()]
        candidates = torch.cat([answers[:, None], chosen.expand(len(anchors), -1, -1)], dim=1)  # (batch, 1 + n, width)
        scores = self._score(anchors[:, None], relations[:, None], candidates, side)

        def backward(slopes: Floats) -> Rows:
            given = torch.from_numpy(slopes).to(scores)
            found = torch.autograd.grad(scores, [*leaves, *self._weights], grad_outputs=given, allow_unused=True)
            own = [torch.zeros_like(w) if g is None else g for w, g in zip(self._weights, found[4:], strict=True)]
            if own:
                self._gradient = torch.cat([each.reshape(-1) for each in own]).cpu().numpy()[None, :]
            rows_ = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=False)]
            return Rows(*(each.cpu().numpy() for each in rows_))

        return scores.detach().cpu().numpy(), backward

    def compare_all(self, anchors: Floats, relations: Floats, entities: Floats, side: Side) -> Floats:
        self._load()
        self.interaction.eval()
        a, r, e = (torch.from_numpy(each).to(self.device) for each in (anchors, relations, entities))
        step = max(1, COMPARED_AT_ONCE // (len(anchors) * self.entity_width))
        with torch.no_grad():
            parts = [
                self._score(a[:, None], r[:, None], e[None, at : at + step], side) for at in range(0, len(e), step)
            ]
        result: Floats = torch.cat(parts, dim=1).cpu().numpy()
        return result

    def parameter_gradient(self) -> Floats | None:
        """That of the last backward pass."""
        taken, self._gradient = self._gradient, None
        return taken

    def begin(self, seed: int) -> None:
        """Dropout draws from torch's one generator: from here on, by this seed."""
        torch.manual_seed(seed)

    def state(self) -> dict[str, Floats]:
        """Running statistics and the like; the parameters are in their table."""
        buffers = self.interaction.named_buffers()
        return {name: np.atleast_1d(each.detach().cpu().numpy().astype(np.float32)) for name, each in buffers}

    def restore(self, arrays: dict[str, Floats]) -> None:
        for name, buffer in self.interaction.named_buffers():
            buffer.copy_(torch.from_numpy(arrays[name]).reshape(buffer.shape).to(buffer))

    def weights(self) -> dict[str, torch.Tensor]:
        """What the interaction itself has learned, under PyKEEN's names."""
        self._load()
        return {name: each.detach().cpu() for name, each in self.interaction.state_dict().items()}

    def _score(
        self, anchors: torch.Tensor, relations: torch.Tensor, candidates: torch.Tensor, side: Side
    ) -> torch.Tensor:
        heads, tails = (anchors, candidates) if side == Side.TAIL else (candidates, anchors)
        scored: torch.Tensor = self.interaction(
            h=_unpack([self._parts(heads, self.entity_shapes)[i] for i in self.interaction.head_indices]),
            r=_unpack(self._parts(relations, self.relation_shapes)),
            t=_unpack([self._parts(tails, self.entity_shapes)[i] for i in self.interaction.tail_indices]),
        )
        return scored.expand(len(anchors), candidates.shape[1])  # (batch, candidates)

    def _parts(self, rows: torch.Tensor, shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
        """A row of numbers as the tensors that the interaction wants."""
        if self.is_complex:
            real, imaginary = rows.chunk(2, dim=-1)
            rows = torch.complex(real, imaginary)
        pieces = torch.split(rows, [math.prod(shape) for shape in shapes], dim=-1)
        return [piece.reshape(*rows.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _load(self) -> None:
        """Put the table's values into the interaction, if they are not there: a graph between two passes needs them."""
        if self.parameters is None:
            return
        if self._loaded is not None:
            those, changes = self._loaded
            if those is self.parameters.values and changes == self.parameters.changes:
                return
        self._loaded = self.parameters.values, self.parameters.changes
        at, values = 0, torch.from_numpy(self.parameters.values[0])
        with torch.no_grad():
            for weight in self._weights:
                weight.copy_(values[at : at + weight.numel()].reshape(weight.shape))
                at += weight.numel()


def make_interaction(name: str, dimension: int) -> Any:
    known = sorted(interaction_resolver.lookup_dict)
    wanted = name.lower().removesuffix("interaction")
    if wanted not in known:
        near = ", ".join(difflib.get_close_matches(wanted, known, n=3) or known)
        raise InputError(f"no PyKEEN interaction {name!r}", remedy=f"did you mean {near}?")
    kind = interaction_resolver.lookup(wanted)
    accepted = inspect.signature(kind.__init__).parameters
    options = {key: dimension for key in ("embedding_dim", "relation_dim") if key in accepted}
    if issubclass(kind, NormBasedInteraction):
        options["p"] = 1
    try:
        return kind(**options)
    except (TypeError, ValueError, RuntimeError, MemoryError) as bad:
        reason = str(bad).splitlines()[0][:120]
        raise InputError(
            f"pykeen:{name} cannot be made ({reason})", remedy="choose another model or dimension"
        ) from bad


def _sizes(shape: str, dimension: int) -> tuple[int, ...]:
    """From PyKEEN's "kd" to (4, dimension); other letters than k and s are the dimension."""
    return tuple(SMALL_SIZES.get(letter, dimension) for letter in shape)


def _unpack(parts: list[torch.Tensor]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)
