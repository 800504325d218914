-- Views over a trace that `tracekit merge` wrote. Times are nanoseconds since the Unix epoch on the run's clock,
-- durations nanoseconds; `slice_id` leads to everything else that Perfetto knows of a slice. What is not known is NULL.
--
--   tracekit query RUN "select rank, lane, sum(dur) / 1e6 as ms from tracekit_lanes group by rank, lane"
--
-- An analysis counts complete steps: so do the lanes. Add `where complete` to a query over tracekit_steps.

-- The ranks of the run, one row each.
CREATE PERFETTO VIEW tracekit_ranks(
  -- The rank.
  rank LONG,
  -- Its process in this trace; joins with Perfetto's tables.
  upid JOINID(process.upid),
  -- What the process is called: rank, host and place in the mesh, as in "rank 3 · host · dp1 tp0".
  name STRING
) AS
SELECT cast(substr(name, 6) AS INT) AS rank, upid, name
FROM process
WHERE name GLOB 'rank [0-9]*';

-- Every slice that tracekit added, with its rank. Slices that cross others lie on tracks of their own below their
-- track; here they carry their track's name like all others.
CREATE PERFETTO VIEW tracekit_slices(
  -- The rank.
  rank LONG,
  -- Name of the track, as the page shows it: steps, compute, "collectives · dp" and so on.
  track STRING,
  -- Name of the slice.
  name STRING,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id),
  -- Its arguments, for extract_arg(arg_set_id, 'debug.NAME').
  arg_set_id ARGSETID
) AS
SELECT
  rank,
  iif(
    process_track.name GLOB '* · overlap [0-9]*',
    substr(process_track.name, 1, instr(process_track.name, ' · overlap ') - 1),
    process_track.name
  ) AS track,
  slice.name,
  slice.ts,
  slice.dur,
  slice.id AS slice_id,
  slice.arg_set_id
FROM slice
JOIN process_track ON slice.track_id = process_track.id
JOIN tracekit_ranks USING (upid)
WHERE slice.category = 'tracekit';

-- The steps of each rank.
CREATE PERFETTO VIEW tracekit_steps(
  -- The rank.
  rank LONG,
  -- Number of the step in the training run.
  step LONG,
  -- 1: the step was recorded whole; 0: its beginning or end is missing, and no sum counts it.
  complete LONG,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  cast(substr(name, 6) AS INT) AS step,
  name NOT GLOB '*(incomplete)' AS complete,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'steps';

-- The phases of each step as the host was in them, until the next one begins; the device of a GPU rank runs behind. The
-- report gives a phase its device time, and time between phases to none.
CREATE PERFETTO VIEW tracekit_phases(
  -- The rank.
  rank LONG,
  -- The phase: forward, backward or optimizer.
  phase STRING,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT rank, name AS phase, ts, dur, slice_id
FROM tracekit_slices
WHERE track = 'phases';

-- Where the time of the counted steps goes. The slices of a lane do not overlap, so the sum of `dur` over a rank's
-- lane is the report's number.
CREATE PERFETTO VIEW tracekit_lanes(
  -- The rank.
  rank LONG,
  -- compute, communication, exposed communication, exposed copies or idle.
  lane STRING,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT rank, track AS lane, ts, dur, slice_id
FROM tracekit_slices
WHERE track IN ('compute', 'communication', 'exposed communication', 'exposed copies', 'idle');

-- The bubbles of pipelines: time of a step of the pipeline in which the rank ran no action. With `wait_ns` of its actions
-- these add up to the report's bubbles; by which causes the report knows for a rank as a whole, not for each.
CREATE PERFETTO VIEW tracekit_bubbles(
  -- The rank.
  rank LONG,
  -- Where it lies: warmup (before the rank's first action of the step), wait (between two), drain (behind its last).
  place STRING,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT rank, name AS place, ts, dur, slice_id
FROM tracekit_slices
WHERE track = 'bubble';

-- The collectives, a row for each rank that took part.
CREATE PERFETTO VIEW tracekit_collectives(
  -- The rank.
  rank LONG,
  -- The step in which it was launched.
  step LONG,
  -- The process group: dp, tp and so on, or its description.
  process_group STRING,
  -- all_reduce, all_gather and so on.
  kind STRING,
  -- Size of the full array, bytes.
  size_bytes LONG,
  -- Type of its elements.
  dtype STRING,
  -- Sequence number within the group.
  sequence LONG,
  -- The same number on every rank that takes part in this one; NULL: not found on other ranks.
  instance LONG,
  -- When it begins on this rank, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes on this rank, waiting for others included, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  substr(track, length('collectives · ') + 1) AS process_group,
  name AS kind,
  extract_arg(arg_set_id, 'debug.size_bytes') AS size_bytes,
  extract_arg(arg_set_id, 'debug.dtype') AS dtype,
  extract_arg(arg_set_id, 'debug.sequence') AS sequence,
  extract_arg(arg_set_id, 'debug.instance') AS instance,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track GLOB 'collectives · *';

-- Sends and receives.
CREATE PERFETTO VIEW tracekit_point_to_point(
  -- The rank.
  rank LONG,
  -- The step in which it was launched.
  step LONG,
  -- The rank that it sends to or receives from.
  peer LONG,
  -- 1: a send; 0: a receive.
  is_send LONG,
  -- Tag of the message.
  tag LONG,
  -- Size of the message, bytes.
  size_bytes LONG,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  extract_arg(arg_set_id, 'debug.peer') AS peer,
  extract_arg(arg_set_id, 'debug.is_send') AS is_send,
  extract_arg(arg_set_id, 'debug.tag') AS tag,
  extract_arg(arg_set_id, 'debug.size_bytes') AS size_bytes,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'point to point';

-- The actions of pipelines.
CREATE PERFETTO VIEW tracekit_actions(
  -- The rank.
  rank LONG,
  -- The step.
  step LONG,
  -- The stage of the model.
  stage LONG,
  -- F (forward), B (backward), I (gradient of the input) or W (gradient of the weights).
  kind STRING,
  -- Number of the microbatch.
  microbatch LONG,
  -- How long it waited for a receive, ns.
  wait_ns LONG,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  extract_arg(arg_set_id, 'debug.stage') AS stage,
  extract_arg(arg_set_id, 'debug.kind') AS kind,
  extract_arg(arg_set_id, 'debug.microbatch') AS microbatch,
  extract_arg(arg_set_id, 'debug.wait_ns') AS wait_ns,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track GLOB 'actions · stage *';

-- The gradient buckets of DDP.
CREATE PERFETTO VIEW tracekit_buckets(
  -- The rank.
  rank LONG,
  -- The step.
  step LONG,
  -- The DDP module, where there are several.
  module STRING,
  -- Number of the bucket within its module.
  bucket LONG,
  -- Its size, bytes.
  size_bytes LONG,
  -- When its last gradient was there, ns since the Unix epoch on the run's clock.
  ready_ns TIMESTAMP,
  -- When its all-reduce was launched, ns since the Unix epoch on the run's clock.
  launch_ns TIMESTAMP,
  -- How long its all-reduce ran while no compute did, ns.
  exposed_ns DURATION,
  -- When its all-reduce begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long its all-reduce takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  cast(extract_arg(arg_set_id, 'debug.module') AS TEXT) AS module,
  extract_arg(arg_set_id, 'debug.bucket') AS bucket,
  extract_arg(arg_set_id, 'debug.size_bytes') AS size_bytes,
  extract_arg(arg_set_id, 'debug.ready_ns') AS ready_ns,
  extract_arg(arg_set_id, 'debug.launch_ns') AS launch_ns,
  extract_arg(arg_set_id, 'debug.exposed_ns') AS exposed_ns,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'buckets';

-- Waits in collectives whose last rank had not come. Waits for messages are not among them.
CREATE PERFETTO VIEW tracekit_waits(
  -- The rank that waited.
  rank LONG,
  -- The rank that it waited for.
  blamed_rank LONG,
  -- The collective, with the same number in tracekit_collectives.
  instance LONG,
  -- Number of the step, NULL outside of any.
  step LONG,
  -- When the wait begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.blamed_rank') AS blamed_rank,
  extract_arg(arg_set_id, 'debug.instance') AS instance,
  extract_arg(arg_set_id, 'debug.step') AS step,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'waits';
