
-- Every slice that tracekit added for the run as a whole.
CREATE PERFETTO VIEW tracekit_run_slices(
  -- Name of the track: findings, steps, critical path.
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
SELECT derived.name AS track, slice.name, slice.ts, slice.dur, slice.id AS slice_id, slice.arg_set_id
FROM slice
JOIN tracekit_tracks AS derived USING (track_id)
WHERE derived.rank IS NULL;

-- The findings of the report.
CREATE PERFETTO VIEW tracekit_findings(
  -- error, warning or info.
  severity STRING,
  -- The rank that it concerns; NULL: the run.
  rank LONG,
  -- The step that it concerns; NULL: all steps.
  step LONG,
  -- What is the case.
  text STRING,
  -- What the time is lost to.
  cause STRING,
  -- How much of the mean step it is about, ns; NULL: not known.
  time_ns DURATION,
  -- What the action would save per step, ns, by a replay; NULL: no replay.
  saving_ns DURATION,
  -- The uncertainty of that, ns.
  saving_error_ns DURATION,
  -- sure or likely.
  certainty STRING,
  -- What to do.
  action STRING,
  -- When its step begins, or the first step, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long its step takes, or all steps, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  extract_arg(arg_set_id, 'debug.severity') AS severity,
  extract_arg(arg_set_id, 'debug.rank') AS rank,
  extract_arg(arg_set_id, 'debug.step') AS step,
  extract_arg(arg_set_id, 'debug.text') AS text,
  extract_arg(arg_set_id, 'debug.cause') AS cause,
  extract_arg(arg_set_id, 'debug.time_ns') AS time_ns,
  extract_arg(arg_set_id, 'debug.saving_ns') AS saving_ns,
  extract_arg(arg_set_id, 'debug.saving_error_ns') AS saving_error_ns,
  extract_arg(arg_set_id, 'debug.certainty') AS certainty,
  extract_arg(arg_set_id, 'debug.action') AS action,
  ts,
  dur,
  slice_id
FROM tracekit_run_slices
WHERE track = 'findings';

-- The critical path: the chain of work and transfers over all ranks that determines how long the steps take. It has a
-- row for each interval on one rank. The sum of `dur` is the report's total.
CREATE PERFETTO VIEW tracekit_critical_path(
  -- The rank of the interval.
  rank LONG,
  -- What the interval leads to or transfers: a collective, a send, the end of the step.
  leads_to STRING,
  -- Its time in compute, ns; this and the next three add up to `dur`, with NULL as 0.
  compute_ns DURATION,
  -- Its time in loading data, ns.
  data_ns DURATION,
  -- Its time in copies, and idle for another cause than data, ns; the arguments of the slice have them apart.
  host_ns DURATION,
  -- Its time in a transfer, after the last rank had arrived, ns.
  communication_ns DURATION,
  -- When it begins, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- How long it takes, ns.
  dur DURATION,
  -- The slice in Perfetto's tables.
  slice_id JOINID(slice.id)
) AS
SELECT
  extract_arg(arg_set_id, 'debug.rank') AS rank,
  extract_arg(arg_set_id, 'debug.before') AS leads_to,
  extract_arg(arg_set_id, 'debug.compute_ns') AS compute_ns,
  extract_arg(arg_set_id, 'debug.data_ns') AS data_ns,
  nullif(
    dur - ifnull(extract_arg(arg_set_id, 'debug.compute_ns'), 0) - ifnull(extract_arg(arg_set_id, 'debug.data_ns'), 0)
    - ifnull(extract_arg(arg_set_id, 'debug.communication_ns'), 0),
    0
  ) AS host_ns,
  extract_arg(arg_set_id, 'debug.communication_ns') AS communication_ns,
  ts,
  dur,
  slice_id
FROM tracekit_run_slices
WHERE track = 'critical path';

-- All counters, with a row for each time at which a counter changes.
CREATE PERFETTO VIEW tracekit_counters(
  -- The rank; NULL: the run as a whole.
  rank LONG,
  -- Name of the counter in the merged trace: ranks waiting, "busbw · dp" and so on.
  counter STRING,
  -- Unit of the values.
  unit STRING,
  -- The value from `ts` on, in that unit.
  value DOUBLE,
  -- From when on it holds, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- For how long it holds, ns: until the next value, or the end of the trace.
  dur DURATION
) AS
SELECT
  shown.rank,
  track.name AS counter,
  track.unit,
  counter.value,
  counter.ts,
  lead(counter.ts, 1, trace_end()) OVER (PARTITION BY counter.track_id ORDER BY counter.ts) - counter.ts AS dur
FROM counter
JOIN counter_track AS track ON counter.track_id = track.id
JOIN tracekit_tracks AS shown ON shown.track_id = counter.track_id;

-- The bus bandwidth of each process group: the sum over its collectives that transfer, from the last rank's arrival on.
CREATE PERFETTO VIEW tracekit_busbw(
  -- The process group: dp, tp and so on, or its description.
  process_group STRING,
  -- Bus bandwidth from `ts` on, GB/s, as nccl-tests defines it; 0 between collectives.
  busbw_gb_per_s DOUBLE,
  -- From when on it holds, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- For how long it holds, ns.
  dur DURATION
) AS
SELECT substr(counter, length('busbw · ') + 1) AS process_group, value AS busbw_gb_per_s, ts, dur
FROM tracekit_counters
WHERE counter GLOB 'busbw · *' AND rank IS NULL;

-- Memory of each rank, where it was recorded.
CREATE PERFETTO VIEW tracekit_memory(
  -- The rank.
  rank LONG,
  -- The device: "GPU 0", CPU.
  device STRING,
  -- What is counted: allocated, reserved, or on a CPU "allocated less freed" since the recording began.
  what STRING,
  -- The memory from `ts` on, bytes.
  size_bytes LONG,
  -- From when on it holds, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- For how long it holds, ns.
  dur DURATION
) AS
SELECT
  rank,
  substr(counter, 1, instr(counter, ' · ') - 1) AS device,
  substr(counter, instr(counter, ' · ') + length(' · ')) AS what,
  cast(value AS INT) AS size_bytes,
  ts,
  dur
FROM tracekit_counters
WHERE rank IS NOT NULL AND (counter GLOB '* · allocated*' OR counter GLOB '* · reserved');

-- How many ranks wait for another rank, as in tracekit_waits.
CREATE PERFETTO VIEW tracekit_ranks_waiting(
  -- Number of ranks that wait from `ts` on.
  ranks LONG,
  -- From when on it holds, ns since the Unix epoch on the run's clock.
  ts TIMESTAMP,
  -- For how long it holds, ns.
  dur DURATION
) AS
SELECT cast(value AS INT) AS ranks, ts, dur
FROM tracekit_counters
WHERE counter = 'ranks waiting' AND rank IS NULL;
