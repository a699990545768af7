"""Tables as a PyKEEN model that scores alike, and the weights of a PyKEEN model as tables.

PyKEEN knows no margin, and its RotatE takes the Euclidean norm where ours sums moduli; so the two distance models come
with interactions that derive from PyKEEN's and add just that. The others are PyKEEN's own, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykeen.models import ERModel
from pykeen.nn import Embedding
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction, RotatEInteraction, TransEInteraction
from pykeen.triples.triples_factory import KGInfo
from pykeen.utils import NoRandomSeedNecessary

from fedlu.embedding.kernels import Floats
from fedlu.embedding.models import PYKEEN
from fedlu.embedding.pykeen_models import PykeenScorer
from fedlu.embedding.scorers import MODELS, shape_of
from fedlu.errors import InputError

ENTITIES, RELATIONS = "entity_representations.0._embeddings.weight", "relation_representations.0._embeddings.weight"
"""Where PyKEEN's models of one table each keep their weights."""


class MarginTransE(TransEInteraction):  # type: ignore[misc]
    """margin - |h + r - t|."""

    def __init__(self, margin: float, p: int):
        super().__init__(p=p)
        self.margin = margin

    def forward(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        score: torch.Tensor = self.margin + super().forward(h=h, r=r, t=t)
        return score


class MarginRotatE(RotatEInteraction):  # type: ignore[misc]
    """margin - the sum of the moduli of h r - t."""

    def __init__(self, margin: float):
        super().__init__()
        self.margin = margin

    def forward(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.margin - (h * r - t).abs().sum(-1)


INTERACTIONS: dict[str, Callable[[float], Any]] = {
    "TransE": lambda margin: MarginTransE(margin, p=1),
    "TransE-L2": lambda margin: MarginTransE(margin, p=2),
    "DistMult": lambda margin: DistMultInteraction(),
    "ComplEx": lambda margin: ComplExInteraction(),
    "RotatE": lambda margin: MarginRotatE(margin),
}


def empty_model(name: str, *, dimension: int, margin: float, entities: int, relations: int, reciprocal: bool) -> Any:
    """A PyKEEN model of the right shape, its weights to be filled in; with inverse relations if `reciprocal`."""
    if name.startswith(PYKEEN):
        scorer = PykeenScorer(name.removeprefix(PYKEEN), dimension, seed=0)
        interaction, is_complex = scorer.interaction, scorer.is_complex
        entity_shapes, relation_shapes = scorer.entity_shapes, scorer.relation_shapes
    else:
        interaction, is_complex = INTERACTIONS[name](margin), shape_of(name).entity_width == 2
        entity_shapes = relation_shapes = [(dimension,)]
    number = torch.cfloat if is_complex else torch.float
    with torch.random.fork_rng(devices=[]):
        return ERModel(
            triples_factory=KGInfo(entities, relations, create_inverse_triples=reciprocal),
            interaction=interaction,
            entity_representations=[Embedding] * len(entity_shapes),
            entity_representations_kwargs=[{"shape": shape, "dtype": number} for shape in entity_shapes],
            relation_representations=[Embedding] * len(relation_shapes),
            relation_representations_kwargs=[{"shape": shape, "dtype": number} for shape in relation_shapes],
            random_seed=NoRandomSeedNecessary,
        ).eval()


def weights_of(
    name: str, *, dimension: int, entities: Floats, relations: Floats, reciprocal: bool, own: Mapping[str, Floats]
) -> dict[str, Floats]:
    """The state of that model: our rows in PyKEEN's order, under PyKEEN's names."""
    if reciprocal:  # ours: all relations, then all inverses; PyKEEN's: each relation, then its inverse
        relations = np.stack(np.split(relations, 2), axis=1).reshape(relations.shape)
    if name == "RotatE":
        relations = np.concatenate([np.cos(relations), np.sin(relations)], axis=1)
    if not name.startswith(PYKEEN):
        is_complex = shape_of(name).entity_width == 2
        return {
            key: _pairs(rows) if is_complex else rows for key, rows in ((ENTITIES, entities), (RELATIONS, relations))
        }
    scorer = PykeenScorer(name.removeprefix(PYKEEN), dimension, seed=0)
    if scorer.parameters is not None:
        scorer.parameters.values = own["parameters"]
    scorer.restore(dict(own))
    state = {f"interaction.{key}": value.numpy() for key, value in scorer.weights().items()}
    for kind, rows, shapes in (
        ("entity", entities, scorer.entity_shapes),
        ("relation", relations, scorer.relation_shapes),
    ):
        at, half = 0, rows.shape[1] // 2
        for place, shape in enumerate(shapes):
            width = int(np.prod(shape))
            if scorer.is_complex:
                piece = np.concatenate([rows[:, at : at + width], rows[:, half + at : half + at + width]], axis=1)
                piece = _pairs(piece)
            else:
                piece = rows[:, at : at + width]
            state[f"{kind}_representations.{place}._embeddings.weight"] = piece
            at += width
    return state


def fill(model: Any, weights: Mapping[str, Floats]) -> Any:
    """Put weights into an empty model; those that do not fit are refused by torch."""
    wanted = model.state_dict()
    state = {key: torch.from_numpy(np.ascontiguousarray(each)) for key, each in weights.items()}
    model.load_state_dict({key: each.reshape(wanted[key].shape).to(wanted[key].dtype) for key, each in state.items()})
    return model


def read_weights(path: Path) -> dict[str, Floats]:
    """A `state_dict` that torch saved, read by the loader that takes tensors and nothing else."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError("no such file", where=path, remedy="give the weights of a PyKEEN model") from None
    except Exception as bad:  # torch raises what its readers raise: of zip, of pickle's words, of tensors
        what = f"not weights alone ({str(bad).splitlines()[0][:80]})"
        remedy = "a pickled model can run any code: save model.state_dict() with torch.save, and give that file"
        raise InputError(what, where=path, remedy=remedy) from None
    if not isinstance(state, dict) or not all(isinstance(each, torch.Tensor) for each in state.values()):
        raise InputError("not the state of a model", where=path, remedy="save model.state_dict() with torch.save")
    return {key: each.float().numpy() for key, each in state.items()}


def rows_of(name: str, weights: Mapping[str, Floats], *, reciprocal: bool, where: Path) -> tuple[Floats, Floats]:
    """(entities, relations) as our tables have them, from the weights of PyKEEN's model of that name."""
    if name not in MODELS:
        raise InputError(f"no model {name!r} to import", remedy=f"choose one of {', '.join(MODELS)}")
    if ENTITIES not in weights or RELATIONS not in weights:
        found = ", ".join(list(weights)[:4])
        raise InputError(f"no weights of {name} in it (it has {found})", where=where, remedy="check --model")
    entities, relations = weights[ENTITIES], weights[RELATIONS]
    if entities.ndim != 2 or relations.ndim != 2 or not all(np.isfinite(each).all() for each in (entities, relations)):
        raise InputError("the weights are not finite tables", where=where, remedy="train the model again")
    if MODELS[name].entity_width == 2:
        entities, relations = _halves(entities), _halves(relations)
    if name == "RotatE":
        real, imaginary = np.split(relations, 2, axis=1)
        relations = np.arctan2(imaginary, real)
    if reciprocal:
        relations = np.concatenate([relations[0::2], relations[1::2]])
    return np.ascontiguousarray(entities), np.ascontiguousarray(relations)


def _pairs(rows: Floats) -> Floats:
    """From all real parts, then all imaginary ones, to a real and an imaginary part in turn."""
    return np.stack(np.split(rows, 2, axis=1), axis=2).reshape(rows.shape)


def _halves(rows: Floats) -> Floats:
    """And back."""
    return np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1)
