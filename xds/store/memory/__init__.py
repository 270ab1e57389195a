"""The memory engine: ``engine`` over ``tables``. It is the reference for the contract, and serves tests."""
