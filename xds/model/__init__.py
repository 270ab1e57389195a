"""The values that every other package uses: resources, types, snapshots, nodes, groups, load reports, errors. Pure."""
