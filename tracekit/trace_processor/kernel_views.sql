
-- What ran on the devices: kernels, copies and fills.
CREATE PERFETTO VIEW tracekit_kernels(
  -- The rank.
  rank LONG,
  -- Name of the kernel or copy.
  name STRING,
  -- As the profiler calls it: kernel, gpu_memcpy, gpu_memset.
  category STRING,
  -- Number of the device, as the rank's process sees it.
  device LONG,
  -- The stream.
  stream LONG,
  -- Its blocks, "[x, y, z]"; NULL where it is no kernel, or nothing is recorded.
  grid STRING,
  -- The threads of a block, likewise.
  block STRING,
  -- How many bytes are copied or filled; NULL of a kernel.
  size_bytes LONG,
  -- Its correlation id, unique within a recording of a rank.
  correlation LONG,
  -- Name of the call on the host that launched it; NULL in this and the next two: not recorded, or filtered out.
  launch_name STRING,
  -- When that call begins, ns since the Unix epoch on the run's clock.
  launch_ts TIMESTAMP,
  -- The call in Perfetto's tables.
  launch_slice_id JOINID(slice.id),
  -- When it begins on the device, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id),
  -- All that is recorded of it, for extract_arg(arg_set_id, 'debug.NAME'), where dots and brackets in a name are _.
  arg_set_id ARGSETID
) AS
WITH
  streams AS (
    SELECT stream.id AS track_id, stream.upid, stream.name
    FROM process_track AS stream
    JOIN process_track AS parent ON stream.parent_id = parent.id
    WHERE parent.name = 'device' AND parent.parent_id IS NULL
  ),
  own AS (
    SELECT track_id, upid, name FROM streams
    UNION ALL
    SELECT lane.id AS track_id, streams.upid, streams.name
    FROM process_track AS lane
    JOIN streams ON lane.parent_id = streams.track_id
  ),
  -- An arrow leads from a call through all that it launched. Left to choose, the planner looks for the arrows of each
  -- slice, and reads all for each.
  launches AS MATERIALIZED (
    SELECT flow.trace_id, call.id, call.name, call.ts
    FROM flow
    CROSS JOIN slice AS call ON flow.slice_out = call.id
    WHERE call.track_id NOT IN (SELECT track_id FROM own)
  ),
  launched AS MATERIALIZED (
    SELECT flow.slice_in AS id, launches.name, launches.ts, launches.id AS call_id
    FROM flow
    CROSS JOIN launches USING (trace_id)
  )
SELECT
  rank,
  slice.name,
  slice.category,
  cast(substr(own.name, 5) AS INT) AS device,
  cast(substr(own.name, instr(own.name, ' stream ') + 8) AS INT) AS stream,
  extract_arg(slice.arg_set_id, 'debug.grid') AS grid,
  extract_arg(slice.arg_set_id, 'debug.block') AS block,
  extract_arg(slice.arg_set_id, 'debug.bytes') AS size_bytes,
  extract_arg(slice.arg_set_id, 'debug.correlation') AS correlation,
  launched.name AS launch_name,
  launched.ts AS launch_ts,
  launched.call_id AS launch_slice_id,
  slice.ts,
  slice.dur,
  slice.id AS slice_id,
  slice.arg_set_id
FROM own
CROSS JOIN slice USING (track_id)
JOIN tracekit_ranks USING (upid)
LEFT JOIN launched ON launched.id = slice.id
WHERE slice.category IN ('kernel', 'Kernel', 'gpu_memcpy', 'gpu_memset', 'Memcpy', 'Memset');
