//! Tests on a Redis server in a container. They are in `tests`.
