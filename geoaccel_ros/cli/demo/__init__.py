"""``geoaccel demo``: all nodes as processes over DDS, recorded, judged and drawn."""
