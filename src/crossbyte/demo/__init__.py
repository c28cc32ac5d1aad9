"""The demonstration: icons or scenes, from files to answers."""
