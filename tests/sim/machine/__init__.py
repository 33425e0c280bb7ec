"""A simulated machine room: time, processes, disks and a network, all owned by one seed."""
