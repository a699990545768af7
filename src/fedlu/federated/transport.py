"""How messages travel. In one process they are calls; elsewhere they will be a network's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedlu.federated.client import Client
from fedlu.federated.messages import (
    Keep,
    Measure,
    Measured,
    Missing,
    Recall,
    Registration,
    Train,
    Trained,
    Unlearn,
    Unlearned,
    Welcome,
)


class Transport(Protocol):
    def register(self) -> Sequence[Registration | Missing]: ...

    def welcome(self, messages: dict[str, Welcome]) -> None: ...

    def train(self, messages: dict[str, Train]) -> Sequence[Trained | Missing]:
        """May take the messages out of the dictionary as they are sent: their rows are needed no more."""
        ...

    def measure(self, messages: dict[str, Measure]) -> Sequence[Measured | Missing]: ...

    def keep(self, message: Keep) -> None: ...

    def recall(self, message: Recall) -> Sequence[Unlearned | Missing]: ...

    def unlearn(self, messages: dict[str, Unlearn]) -> Sequence[Unlearned | Missing]: ...


class InProcessTransport:
    """Clients of this process, one after the other: each uses all cores."""

    def __init__(self, clients: list[Client], key: bytes):
        self.clients, self.key = {client.name: client for client in clients}, key

    def register(self) -> list[Registration]:
        return [client.register(self.key) for client in self.clients.values()]

    def welcome(self, messages: dict[str, Welcome]) -> None:
        for name, message in messages.items():
            self.clients[name].welcome(message)

    def train(self, messages: dict[str, Train]) -> list[Trained]:
        return [self.clients[name].train(message) for name, message in messages.items()]

    def measure(self, messages: dict[str, Measure]) -> list[Measured]:
        return [self.clients[name].measure(message) for name, message in messages.items()]

    def keep(self, message: Keep) -> None:
        for client in self.clients.values():
            client.keep(message)

    def recall(self, message: Recall) -> list[Unlearned]:
        return [client.recall(message) for client in self.clients.values()]

    def unlearn(self, messages: dict[str, Unlearn]) -> list[Unlearned]:
        return [self.clients[name].unlearn(message) for name, message in messages.items()]
