"""The server: averages row by row, keeps what nobody sent, checks what arrives, and learns no name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedlu.config import Settings
from fedlu.errors import InputError
from fedlu.federated import messages
from fedlu.federated.alignment import key_for_one_process, tokens
from fedlu.federated.client import Client
from fedlu.federated.messages import MessageError, Registration, Train, Trained, Unlearned
from fedlu.federated.server import Server
from fedlu.graph import Federation, partition, read

WIDTH = 4
LABELS = {"north": ("ada", "flu", "fever"), "south": ("aspirin", "flu", "fever"), "west": ("fever", "york")}


@pytest.fixture
def server() -> Server:
    server = Server(WIDTH, 0.1, seed=1)
    server.register([Registration(name, tokens(labels, b"key")) for name, labels in LABELS.items()])
    return server


def sent(server: Server, name: str, value: float) -> Trained:
    return Trained(name, 1, np.full((len(server.rows[name]), WIDTH), value, dtype=np.float32), {})


def row_of(server: Server, label: str) -> np.ndarray:
    """The global row of a label, found as an owner would."""
    shared = sorted(token for token in tokens(("flu", "fever"), b"key"))
    return server.table[shared.index(tokens((label,), b"key")[0])]


def test_only_rows_with_several_owners_are_held(server: Server) -> None:
    assert len(server.table) == 2
    welcomes = server.register([Registration(name, tokens(labels, b"key")) for name, labels in LABELS.items()])
    assert {name: welcome.shared.tolist() for name, welcome in welcomes.items()} == {
        "north": [1, 2],
        "south": [1, 2],
        "west": [0],
    }


def test_a_row_is_the_mean_of_its_senders(server: Server) -> None:
    server.aggregate([sent(server, "north", 1.0), sent(server, "south", 2.0), sent(server, "west", 6.0)])
    assert (row_of(server, "flu") == 1.5).all()
    assert (row_of(server, "fever") == 3.0).all()


def test_a_row_that_nobody_sent_keeps_its_value(server: Server) -> None:
    before = row_of(server, "flu").copy()
    server.aggregate([sent(server, "west", 6.0)])
    assert (row_of(server, "flu") == before).all()
    assert (row_of(server, "fever") == 6.0).all()


@pytest.mark.parametrize(("add_up", "times"), [(0.0, (1, 1)), (0.5, (2**0.5, 3**0.5)), (1.0, (2, 3))])
def test_changes_of_a_row_add_up_by_the_number_of_its_senders(
    server: Server, add_up: float, times: tuple[float, float]
) -> None:
    """From what the server had, not from zero."""
    server.add_up, server.table = add_up, np.full_like(server.table, 10.0)
    server.aggregate([sent(server, name, 12.0) for name in LABELS])
    assert row_of(server, "flu") == pytest.approx(10 + 2 * times[0])  # north's and south's
    assert row_of(server, "fever") == pytest.approx(10 + 2 * times[1])  # of all three


@pytest.mark.parametrize("how", ["median", "trimmed"])
def test_a_middle_that_liars_cannot_move_stays_within_what_the_others_sent(server: Server, how: str) -> None:
    server.add_up, server.table = 1.0, np.zeros_like(server.table)
    server.aggregate([sent(server, "north", 1.0), sent(server, "south", 1.1), sent(server, "west", 1e6)], how)
    assert row_of(server, "fever") == pytest.approx(1.1)


def test_added_up_changes_are_their_sum_whatever_they_are(server: Server, random: np.random.Generator) -> None:
    server.add_up, before = 1.0, server.table.copy()
    normal = {name: random.normal(size=(len(rows), WIDTH)) for name, rows in server.rows.items()}
    server.aggregate([Trained(name, 1, rows.astype(np.float32), {}) for name, rows in normal.items()])
    changes = np.zeros((len(before), WIDTH))
    for name, rows in server.rows.items():
        changes[rows] += normal[name] - before[rows]
    assert server.table == pytest.approx(before + changes, abs=1e-5)


def test_what_one_client_sent_and_what_was_forgotten_is_never_exaggerated(server: Server) -> None:
    server.add_up = 1.0
    server.aggregate([sent(server, "west", 6.0)])
    assert (row_of(server, "fever") == 6.0).all()
    forgot = [
        Unlearned(name, 1, np.arange(len(server.rows[name])), sent(server, name, 8.0).rows, content=True)
        for name in ("north", "south")
    ]
    server.merge(forgot)
    assert (row_of(server, "fever") == 8.0).all()


def test_the_order_of_arrival_does_not_matter(server: Server, random: np.random.Generator) -> None:
    normal = {name: random.normal(size=(len(rows), WIDTH)) for name, rows in server.rows.items()}
    replies = [Trained(name, 1, rows.astype(np.float32), {}) for name, rows in normal.items()]
    server.aggregate(replies)
    first = server.table.copy()
    server.aggregate(replies[::-1])
    assert (server.table == first).all()


@pytest.mark.parametrize("spoil", ["shape", "type", "nan"])
def test_bad_rows_are_refused_before_anything_changes(server: Server, spoil: str) -> None:
    rows = np.ones((2, WIDTH), dtype=np.float32)
    bad = {"shape": rows[:1], "type": rows.astype(np.float64), "nan": np.full_like(rows, np.nan)}[spoil]
    before = server.table.copy()
    with pytest.raises(MessageError, match=r"^north: rows"):
        server.aggregate([sent(server, "south", 1.0), Trained("north", 1, bad, {})])
    assert (server.table == before).all()


def test_a_token_registered_twice_is_refused() -> None:
    twice = tokens(("caf\u00e9", "cafe\u0301"), b"key")  # the same text, composed and not
    assert twice[0] == twice[1]
    with pytest.raises(InputError, match="north: registers a token twice"):
        Server(WIDTH, 0.1, seed=1).register([Registration("north", twice)])


def test_tokens_need_the_key() -> None:
    assert tokens(("flu",), b"key") != tokens(("flu",), b"another")
    assert key_for_one_process(1) != key_for_one_process(2)


def test_a_fraction_of_clients_is_sampled_by_the_seed(server: Server) -> None:
    rounds = [server.sample(number, 0.67) for number in range(20)]
    assert all(len(names) == 2 and names == sorted(names) for names in rounds)
    assert {name for names in rounds for name in names} == set(LABELS)
    assert rounds == [server.sample(number, 0.67) for number in range(20)]
    assert server.sample(1, 1.0) == sorted(LABELS)


@pytest.fixture
def federation() -> Federation:
    return partition(read("umls"), clients=3, by="cluster", seed=1)


def test_messages_hold_no_name_and_no_triple(federation: Federation) -> None:
    """Every field of every message that a client sends: only tokens, numbers by table, and metrics by their names."""
    client = Client(federation.clients[1], Settings(dimension=8, rounds=1))
    other = Client(federation.clients[2], Settings(dimension=8, rounds=1))
    server = Server(client.width, 0.1, seed=0)
    registrations = [each.register(b"key") for each in (client, other)]
    welcomes = server.register(registrations)
    client.welcome(welcomes[client.name])
    trained = client.train(Train(1, server.rows_for(client.name)))
    measured = client.measure(messages.Measure(1, "valid", server.rows_for(client.name)))
    for message in (registrations[0], trained, measured):
        said = repr({k: v for k, v in dataclasses.asdict(message).items() if not isinstance(v, np.ndarray)})
        for label in (*client.graph.vocabulary.entities, *client.graph.vocabulary.relations):
            assert label not in said
    arrays = [
        value for message in (trained, measured) for value in vars(message).values() if isinstance(value, np.ndarray)
    ]
    assert [array.dtype for array in arrays] == [np.float32]  # embeddings alone; ids would be integers
    assert set(trained.losses) == {"local", "global"}
    assert trained.rows.shape == (len(client.shared), client.width)
    assert len(client.shared) < len(client.graph.vocabulary.entities)  # some rows are the client's alone


def test_every_message_is_frozen() -> None:
    kinds = [each for each in vars(messages).values() if dataclasses.is_dataclass(each)]
    assert len(kinds) >= 7
    assert all(kind.__dataclass_params__.frozen for kind in kinds)
