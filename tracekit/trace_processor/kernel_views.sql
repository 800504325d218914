
-- What ran on the devices: kernels, copies and fills.
CREATE PERFETTO VIEW tracekit_kernels(
  -- The rank.
  rank LONG,
  -- Name of the kernel or copy.
  name STRING,
  -- The profiler's category: kernel, gpu_memcpy, gpu_memset.
  category STRING,
  -- Number of the device in the rank's process.
  device LONG,
  -- The stream.
  stream LONG,
  -- Number of blocks, "[x, y, z]"; NULL for copies and fills, and if it was not recorded.
  grid STRING,
  -- Number of threads in a block, "[x, y, z]"; NULL as for grid.
  block STRING,
  -- How many bytes are copied or filled; NULL for a kernel.
  size_bytes LONG,
  -- Correlation id, unique within a recording of a rank.
  correlation LONG,
  -- Name of the host call that launched it; NULL here and in the next two columns if that was not recorded or left out.
  launch_name STRING,
  -- When the host call begins, ns since the Unix epoch on the run's clock.
  launch_ts TIMESTAMP,
  -- The host call in Perfetto's tables.
  launch_slice_id JOINID(slice.id),
  -- When it begins on the device, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id),
  -- All its arguments, for extract_arg(arg_set_id, 'debug.NAME'); dots and brackets in a name are written as _.
  arg_set_id ARGSETID
) AS
WITH
  device_tracks AS MATERIALIZED (SELECT track_id, rank, name FROM tracekit_tracks WHERE part = 'device'),
  -- An arrow leads from a host call through all device events that it launched. Without MATERIALIZED and CROSS JOIN the
  -- planner would read all arrows again for each slice.
  launches AS MATERIALIZED (
    SELECT flow.trace_id, call.id, call.name, call.ts
    FROM flow
    CROSS JOIN slice AS call ON flow.slice_out = call.id
    WHERE call.track_id NOT IN (SELECT track_id FROM device_tracks)
  ),
  launch_of AS MATERIALIZED (
    SELECT flow.slice_in AS id, launches.name, launches.ts, launches.id AS call_id
    FROM flow
    CROSS JOIN launches USING (trace_id)
  )
SELECT
  rank,
  slice.name,
  slice.category,
  cast(substr(device_tracks.name, 5) AS INT) AS device,
  cast(substr(device_tracks.name, instr(device_tracks.name, ' stream ') + 8) AS INT) AS stream,
  extract_arg(slice.arg_set_id, 'debug.grid') AS grid,
  extract_arg(slice.arg_set_id, 'debug.block') AS block,
  extract_arg(slice.arg_set_id, 'debug.bytes') AS size_bytes,
  extract_arg(slice.arg_set_id, 'debug.correlation') AS correlation,
  launch_of.name AS launch_name,
  launch_of.ts AS launch_ts,
  launch_of.call_id AS launch_slice_id,
  slice.ts,
  slice.dur,
  slice.id AS slice_id,
  slice.arg_set_id
FROM device_tracks
CROSS JOIN slice USING (track_id)
LEFT JOIN launch_of ON launch_of.id = slice.id
WHERE slice.category IN ('kernel', 'Kernel', 'gpu_memcpy', 'gpu_memset', 'Memcpy', 'Memset');
