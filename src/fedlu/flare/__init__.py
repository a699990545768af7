"""NVIDIA FLARE as a transport between organisations: certificates, processes and jobs. Nothing is learned here."""

from __future__ import annotations

from importlib.util import find_spec

from fedlu.errors import UnavailableError


def need_flare() -> None:
    if find_spec("nvflare") is None:
        raise UnavailableError("NVIDIA FLARE is not installed", remedy="pip install 'fedlu[federation]'")
