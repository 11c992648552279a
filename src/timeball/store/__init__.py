"""Every SQL statement of Timeball, and nothing else. `store.py` is the contract; the verbs live beside it by noun."""

from timeball.store.store import Store, open_store

__all__ = ["Store", "open_store"]
