-- Views over a trace that `tracekit merge` wrote. Times are nanoseconds since the Unix epoch on the run's clock,
-- durations are nanoseconds. `slice_id` joins with Perfetto's table of slices. What is not known is NULL.
--
--   tracekit query RUN "select rank, lane, sum(dur) / 1e6 as ms from tracekit_lanes group by rank, lane"
--
-- An analysis counts complete steps only, and so do the lanes. Add `where complete` to a query over tracekit_steps.

-- The ranks of the run, a row for each.
CREATE PERFETTO VIEW tracekit_ranks(
  -- The rank.
  rank LONG,
  -- Its page in Perfetto's tables: the track that has all tracks of the rank under it (tracekit_tracks).
  track_id JOINID(track.id),
  -- Name of the page: rank, host and coordinates in the mesh, as in "rank 3 · host · dp1 tp0".
  name STRING
) AS
SELECT cast(substr(page.name, 6) AS INT) AS rank, page.id AS track_id, page.name
FROM track AS page
CROSS JOIN track AS run ON page.parent_id = run.id
WHERE page.name GLOB 'rank [0-9]*' AND run.name = 'run' AND run.parent_id IS NULL;

-- All tracks: those that tracekit added for ranks and for the run, and those of the input.
CREATE PERFETTO VIEW tracekit_tracks(
  -- The track in Perfetto's tables. Slices that cross others are on further tracks under it, each with its row.
  track_id JOINID(track.id),
  -- The rank; NULL: the run as a whole.
  rank LONG,
  -- Where it is on the page of the rank: analysis (added by tracekit), device or host; analysis for those of the run.
  part STRING,
  -- What it shows: steps, compute and so on, a stream, a thread. Tracks under it have the same name here.
  name STRING
) AS
WITH
  -- Parents are looked up by their id, which is quick for any number of tracks. CROSS JOIN keeps this order.
  of_ranks AS (
    SELECT
      track.id,
      cast(substr(page.name, 6) AS INT) AS rank,
      part.name AS part,
      -- Perfetto's UI shows some tracks away from their page, so their names begin with "rank 3 ".
      iif(
        part.name = 'analysis' AND track.name GLOB 'rank [0-9]* *',
        substr(track.name, 6 + instr(substr(track.name, 6), ' ')),
        track.name
      ) AS name
    FROM track
    CROSS JOIN track AS part ON track.parent_id = part.id
    CROSS JOIN track AS page ON part.parent_id = page.id
    CROSS JOIN track AS run ON page.parent_id = run.id
    WHERE page.name GLOB 'rank [0-9]*' AND run.name = 'run' AND run.parent_id IS NULL
  ),
  of_run AS (
    SELECT track.id, NULL AS rank, 'analysis' AS part, track.name
    FROM track
    CROSS JOIN track AS run ON track.parent_id = run.id
    WHERE track.name NOT GLOB 'rank [0-9]*' AND run.name = 'run' AND run.parent_id IS NULL
  ),
  uncrossed AS MATERIALIZED (SELECT * FROM of_ranks UNION ALL SELECT * FROM of_run)
SELECT id AS track_id, rank, part, name FROM uncrossed
UNION ALL
SELECT track.id AS track_id, rank, part, uncrossed.name
FROM track
JOIN uncrossed ON track.parent_id = uncrossed.id;

-- Every slice that tracekit added to a rank.
CREATE PERFETTO VIEW tracekit_slices(
  -- The rank.
  rank LONG,
  -- What its track shows: steps, compute, "collectives · dp" and so on.
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
SELECT rank, derived.name AS track, slice.name, slice.ts, slice.dur, slice.id AS slice_id, slice.arg_set_id
FROM slice
JOIN tracekit_tracks AS derived USING (track_id)
WHERE derived.part = 'analysis' AND derived.rank IS NOT NULL;

-- The steps of each rank.
CREATE PERFETTO VIEW tracekit_steps(
  -- The rank.
  rank LONG,
  -- Number of the step in the training run.
  step LONG,
  -- 0: no sum counts it, as its start or end is missing, or as it is a first step longer than the others; else 1.
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
  name NOT GLOB '*(incomplete)' AND name NOT GLOB '*(left out)' AS complete,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'steps';

-- The phases of the counted steps, which have no gaps: those of a GPU rank on its device, which runs later than its host.
-- The sum of `duration_ns` over a phase of a rank is the report's number.
CREATE PERFETTO VIEW tracekit_phases(
  -- The rank.
  rank LONG,
  -- Number of the step in the training run.
  step LONG,
  -- The phase: data, forward, backward, optimizer, evaluation, checkpoint, logging or other.
  phase STRING,
  -- How long it takes on the rank's own clock, ns; `dur` is on the run's clock, which may run at another speed.
  duration_ns DURATION,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes on the run's clock, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  name AS phase,
  extract_arg(arg_set_id, 'debug.duration_ns') AS duration_ns,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'phases';

-- Where the time of the counted steps goes. Slices of a lane do not overlap, and the sum of `dur` over a lane of a rank
-- is the report's number.
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

-- The bubbles of pipelines: time of a step of the pipeline in which the rank ran no action. Their sum and that of
-- `wait_ns` of its actions are the report's bubbles. The report splits them by cause for a rank as a whole, not for
-- each bubble.
CREATE PERFETTO VIEW tracekit_bubbles(
  -- The rank.
  rank LONG,
  -- Its place: warmup (before the rank's first action of the step), wait (between two actions), drain (after the last).
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

-- The collectives, with a row for each rank that took part.
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
  -- Number of the collective in the run, the same on all its ranks; NULL: not found on other ranks.
  instance LONG,
  -- When it begins on this rank, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes on this rank, with the wait for other ranks, ns.
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
  -- The rank that receives the message, or that sent it.
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
  -- The DDP module, if there are several.
  module STRING,
  -- Number of the bucket within its module.
  bucket LONG,
  -- Its size, bytes.
  size_bytes LONG,
  -- When its last gradient was ready, ns since the Unix epoch on the run's clock.
  ready_ns TIMESTAMP,
  -- When its all-reduce was launched, ns since the Unix epoch on the run's clock.
  launch_ns TIMESTAMP,
  -- How long its all-reduce ran without any compute beside it, ns.
  uncovered_ns DURATION,
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
  extract_arg(arg_set_id, 'debug.uncovered_ns') AS uncovered_ns,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'buckets';

-- Waits of a rank for another rank: in a collective until the last rank arrived, or for a message. Waits may overlap.
-- Compute that runs during a wait is not subtracted.
CREATE PERFETTO VIEW tracekit_waits(
  -- The rank that waited.
  rank LONG,
  -- The rank that it waited for, which arrived last, or sent or received the message.
  blamed_rank LONG,
  -- 1: a wait for a message to or from that rank; 0: a wait in a collective.
  is_message LONG,
  -- Number of the collective, as in tracekit_collectives; NULL for a message.
  instance LONG,
  -- Number of the step; NULL outside of all steps.
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
  extract_arg(arg_set_id, 'debug.is_message') AS is_message,
  extract_arg(arg_set_id, 'debug.instance') AS instance,
  extract_arg(arg_set_id, 'debug.step') AS step,
  ts,
  dur,
  slice_id
FROM tracekit_slices
WHERE track = 'waits';

-- When a rank was late to a collective: from the arrival of the last rank but one to its own. The excess is how much
-- more time than the median of its peers it took since it was last released. Lateness beyond the excess was caused by
-- other ranks.
CREATE PERFETTO VIEW tracekit_lateness(
  -- The rank that arrived last.
  rank LONG,
  -- Number of the collective, as in tracekit_collectives and tracekit_waits.
  instance LONG,
  -- Number of the step; NULL outside of all steps.
  step LONG,
  -- The largest part of the excess: compute, data (loading it) or host; NULL: it took no longer than its peers.
  cause STRING,
  -- How much more time than its peers it took since it was last released, ns; may be negative.
  excess_ns DURATION,
  -- How much more of that time it computed, ns; this and the next two add up to excess_ns.
  excess_compute_ns DURATION,
  -- How much more of that time it loaded data, ns.
  excess_data_ns DURATION,
  -- How much more of that time only the host was busy, ns.
  excess_host_ns DURATION,
  -- When the last rank but one arrived, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How late it was, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
WITH late AS (
  SELECT
    rank,
    extract_arg(arg_set_id, 'debug.instance') AS instance,
    extract_arg(arg_set_id, 'debug.step') AS step,
    extract_arg(arg_set_id, 'debug.excess_ns') AS excess_ns,
    extract_arg(arg_set_id, 'debug.excess_compute_ns') AS compute_ns,
    extract_arg(arg_set_id, 'debug.excess_data_ns') AS data_ns,
    extract_arg(arg_set_id, 'debug.excess_host_ns') AS host_ns,
    ts,
    dur,
    slice_id
  FROM tracekit_slices
  WHERE track = 'late' AND name != 'arrives'
)
SELECT
  rank,
  instance,
  step,
  CASE
    WHEN excess_ns <= 0 THEN NULL
    WHEN compute_ns >= max(data_ns, host_ns) THEN 'compute'
    WHEN data_ns >= host_ns THEN 'data'
    ELSE 'host'
  END AS cause,
  excess_ns,
  compute_ns AS excess_compute_ns,
  data_ns AS excess_data_ns,
  host_ns AS excess_host_ns,
  ts,
  dur,
  slice_id
FROM late;
