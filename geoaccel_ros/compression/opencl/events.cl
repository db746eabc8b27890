// A work-group moves a chunk's events behind those of the chunk before.
kernel void pack_events(global const ushort *events, uint room, global const uint *starts, global ushort *packed)
{
    const uint chunk = get_group_id(0), lane = get_local_id(0), lanes = get_local_size(0);
    const uint to = starts[chunk], count = starts[chunk + 1] - to;
    for (uint i = lane; i < count; i += lanes)
        packed[to + i] = events[(ulong)chunk * room + i];
}
