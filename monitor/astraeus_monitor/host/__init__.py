"""What the kernel tells of processes, files and sockets: /proc, cgroups, netlink, and the shape of a task's tree."""
