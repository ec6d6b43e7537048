"""Limits of the reading room. Change them here; nothing else holds numbers."""

# Sessions that one member may start per day.
session_daily_limit = 10

# Minutes after which an idle desk is given to somebody else.
idle_minutes = 30

# Desks of the room, by name.
desks = ["north-1", "north-2", "south-1", "south-2", "window"]
