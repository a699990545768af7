"""Settings of a run: frozen, typed, checked once. A recipe is a TOML file of the package; `--set key=value` overrides.

A recipe's own keys hold for every run; its tables [models.NAME], [methods.NAME] and [methods.NAME.models.NAME] add what
differs there, each stronger than the one before. A model with `like = "OTHER"` has all that is said of that one, too,
where nothing is said of itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from fedlu.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

METHODS = ("independent", "centralized", "fede", "fedprox", "fedec", "fedlu")
RECIPES = ("fast", "paper", "strong")
OPTIONS = ("method", "model", "seed")
"""Settings that are options of `fedlu learn`, not for --set."""
CHOICES = {
    "method": METHODS,
    "loss": ("contrastive", "cross_entropy"),
    "optimizer": ("adam", "adagrad"),
    "relations_from": ("local", "both"),
    "compress": ("none", "fp16", "int8"),
}
SHARES = {"warm_rounds": "rounds"}
"""Whole numbers that may also be given as a share, below 1, of another: then they follow it."""


@dataclass(frozen=True)
class Settings:
    """Everything that a run depends on, besides its data."""

    # what is learned
    method: str = "fedlu"
    model: str = "TransE"
    dimension: int = 256
    margin: float = 10.0
    """Of distance models: the score is margin - distance."""
    initial_range: float = 0.0
    """Rows start uniformly within this; 0 means (margin + 2) / dimension."""
    device: str = ""
    """Where scores are computed: our fused loops on the CPU, unless this names a torch device (cpu, cuda, mps)."""
    reciprocal: bool = False
    """Two relation rows per relation, one for each direction."""
    # how a client learns
    loss: str = "contrastive"
    adversarial: float = 1.0
    """How sharply hard negatives are preferred; 0 weighs them evenly."""
    weighted: bool = True
    """Weigh a triple by 1 / sqrt of how often its (head, relation) and (relation, tail) occur."""
    negatives: int = 256
    private_negatives: bool = False
    """Negatives drawn for each triple, as in the paper, rather than shared by a batch."""
    batch_size: int = 512
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    final_rate: float = 1.0
    """The share of the learning rate that is left in the last round; it falls evenly from round to round."""
    n3: float = 0.0
    """Strength of the cubic (N3) regulariser of the rows of a batch."""
    dura: float = 0.0
    """Strength of the DURA regulariser, which keeps queries and answers small, beside the cubic one; ComplEx and
    DistMult only."""
    relation_prediction: float = 0.0
    """Weight of also predicting the relation of a head and a tail; ComplEx and DistMult only."""
    # how the clients learn together
    rounds: int = 60
    epochs: float = 1
    """A client's epochs in a round; an epoch asks for every head and every tail once. Below 1, a round is a half, a
    third, ... of an epoch: rows are averaged more often, for more bytes, and there have to be more rounds."""
    fraction: float = 1.0
    """The share of clients that take part in a round."""
    keep_optimizer: bool = True
    """Keep the optimizer's memory from round to round."""
    remember: float = 0.0
    """The share of the rounds, the last ones, over which a client averages each view's rows and relations for
    prediction, while learning goes on with those of the round; 0: they are as the last round left them. What the last
    round's rows were averaged to would come with the next, and is not among them."""
    add_up: float = 0.0
    """How far clients' changes of a row add up: one that k of them sent moves k ** add_up times as far as the mean of
    their changes. 0: to the mean, as in the paper; 1: by the sum, as if one had trained on all their triples.
    Medians never add up."""
    compress: str = "none"
    """Rows on the wire while learning: as they are, in half precision, or in whole numbers of one byte."""
    # FedLU: two tables that teach each other
    warm_rounds: int = 0
    """Rounds with one table, as in FedE, before local and global part; 0.5: half of all rounds."""
    own_start: bool = False
    """Without warm rounds, after which it is a copy: whether the local table begins with rows and relations of its own.
    Two tables that begin alike have little to teach each other."""
    teach_local: float = 2.0
    """Weight of the distillation from global to local."""
    teach_global: float = 2.0
    """Weight of the distillation from local to global."""
    teach_local_after: int = 0
    """Rounds that must have passed since the tables parted."""
    teach_global_after: int = 0
    temperature: float = 1.0
    relations_from: str = "local"
    """Which tables' gradients move the relations that they share."""
    rejoin: float = 0.0
    """The part of the way that shared local rows go back to the global ones before each round with two tables, but for
    the first; with starts of their own, they were never together."""
    # rivals
    proximal: float = 0.0
    """FedProx: pull of the global row."""
    contrast: float = 0.0
    """FedEC: weight of the contrast between the global row and the one of the last round."""
    contrast_temperature: float = 0.2
    # when to look, and when to stop
    evaluate_every: int = 5
    patience: int = 3
    valid_share: float = 1.0
    """Rank this share of every client's valid triples while learning; at the end, all are ranked."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} = {getattr(self, name)!r}", remedy=f"choose one of {', '.join(known)}")
        for name in ("dimension", "negatives", "batch_size", "rounds", "evaluate_every", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}", remedy="give at least 1")
        for name in ("learning_rate", "temperature", "contrast_temperature", "margin"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name)}", remedy="give a number above 0")
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str | bool) and field.name != "seed" and not 0 <= value < float("inf"):
                raise InputError(f"{field.name} = {value}", remedy="give a finite number, not below 0")
        if not _is_whole_or_part(self.epochs):
            raise InputError(f"epochs = {self.epochs}", remedy="give a whole number, or a half, a third, ... of one")
        for name in ("fraction", "valid_share", "final_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name} = {getattr(self, name)}", remedy="give a share above 0, up to 1")
        for name in ("rejoin", "remember", "add_up"):
            if getattr(self, name) > 1:
                raise InputError(f"{name} = {getattr(self, name)}", remedy="give a share from 0 to 1")
        if self.temperature < 0.01:
            raise InputError(f"temperature = {self.temperature}", remedy="give at least 0.01")
        if self.method == "fedlu" and self.warm_rounds >= self.rounds:
            what = f"warm_rounds = {self.warm_rounds} of rounds = {self.rounds}: the two tables would never part"
            raise InputError(what, remedy="give fewer warm_rounds or more rounds")

    def rate_in(self, round_number: int) -> float:
        """The learning rate of a round."""
        gone = min(1.0, (round_number - 1) / max(1, self.rounds - 1))
        return self.learning_rate * (1 - (1 - self.final_rate) * gone)

    @property
    def begins_apart(self) -> bool:
        """FedLU: whether a client has two models from the first round on, with rows and relations of their own; weights
        that an interaction of PyKEEN's has besides are shared."""
        return self.method == "fedlu" and self.own_start and not self.warm_rounds

    @property
    def first_remembered(self) -> int:
        """The first of the rounds that a view's mean is of."""
        return whole_of(1 - self.remember, self.rounds) + 1

    @property
    def rounds_an_epoch(self) -> int:
        """Over how many rounds an epoch is spread; 1 if a round has whole ones."""
        return max(1, round(1 / self.epochs))

    @property
    def start_range(self) -> float:
        """The released code's (margin + 2) / dimension, unless said otherwise."""
        return self.initial_range or (self.margin + 2) / self.dimension


def _is_whole_or_part(number: float) -> bool:
    """1, 2, ... or a half, a third, ..., up to a thousandth; a third may be written as 0.33."""
    if number >= 1:
        return float(number).is_integer()
    return number >= 1e-3 and abs(number * round(1 / number) - 1) <= 0.02


def recipe_text(name: str) -> str:
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}", remedy=f"choose one of {', '.join(RECIPES)}")
    return _package_text(name)


def _package_text(name: str) -> str:
    return resources.files("fedlu").joinpath("recipes", f"{name}.toml").read_text(encoding="utf-8")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file", where=path, remedy="check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as bad:
        raise InputError(f"not TOML ({bad})", where=path, remedy="mend it") from None


def read_recipe(name: str) -> dict[str, Any]:
    return tomllib.loads(recipe_text(name))


def read_space() -> dict[str, Any]:
    """Where `fedlu tune` looks: what may be tuned, for every method, for a model, for a method."""
    return tomllib.loads(_package_text("space"))


def layers(text: dict[str, Any], method: str, model: str) -> list[dict[str, Any]]:
    """What a recipe, or the space, says of a model, of a method, and of both; each stronger than the one before."""
    models, of_method = text.get("models", {}), text.get("methods", {}).get(method, {})
    names = (models.get(model, {}).get("like", model), model)
    of_model, of_both = (
        {key: value for name in names for key, value in tables.get(name, {}).items() if key != "like"}
        for tables in (models, of_method.get("models", {}))
    )
    return [of_model, {key: value for key, value in of_method.items() if key != "models"}, of_both]


def resolve(recipe: str, *, method: str, model: str, overrides: dict[str, Any] | None = None) -> Settings:
    """A recipe, what it says of this model and this method, and overrides, each stronger than the one before."""
    known = {field.name: field for field in fields(Settings)}
    text = read_recipe(recipe)
    tables = [text, *layers(text, method, model), overrides or {}]
    values: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            if key in ("about", "models", "methods"):
                continue
            if key not in known:
                raise InputError(f"no setting {key!r}", remedy=f"known are {', '.join(known)}")
            values[key] = _as_type(key, value, str(known[key].type))
    if values.get("warm_rounds"):
        if "own_start" in (overrides or {}) and values["own_start"]:
            what = f"own_start = true with warm_rounds = {values['warm_rounds']}, after which local is a copy of global"
            raise InputError(what, remedy="set warm_rounds=0, too")
        values["own_start"] = False  # only 0 begins apart, not a share of so few rounds that none is left
    for key, whole in SHARES.items():
        if isinstance(share := values.get(key), float):
            values[key] = whole_of(share, values.get(whole, getattr(Settings, whole)))
    return replace(Settings(), **{**values, "method": method, "model": model})


def whole_of(share: float, number: int) -> int:
    """Rounded down, but for what a computer lacks of a whole number."""
    return int(share * number + 1e-9)


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """From ["margin=9", ...] to {"margin": "9", ...}; what has an option of its own is not set this way."""
    known = [field.name for field in fields(Settings) if field.name not in OPTIONS]
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}", remedy="write it as key=value")
        if key.strip() not in known:
            raise InputError(f"no setting {key.strip()!r}", remedy=f"known are {', '.join(known)}")
        found[key.strip()] = value.strip()
    return found


def _as_type(key: str, value: Any, kind: str) -> Any:
    """The value in the type of its field; text comes from the command line, the rest from TOML or Python."""
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if kind == "int":
            number = float(value)
            if key in SHARES and 0 < number < 1:
                return number
            if not number.is_integer():
                raise ValueError
            return int(number) if abs(number) < 2**53 else int(value)  # a long seed keeps all its digits
        return float(value) if kind == "float" else str(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        or_share = f", or a share of {SHARES[key]} below 1" if key in SHARES else ""
        raise InputError(f"{key} = {value!r}", remedy=f"give a value of type {kind}{or_share}") from None
