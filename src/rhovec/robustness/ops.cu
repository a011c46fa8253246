// Exact robustness on a GPU: a warp runs one formula on 32 signals, a lane a signal.
//
// Rows of the arena (see lowering.py) hold one time for the warp's 32 signals, so every access is one
// unbroken line of memory, no lane ever reads what another one wrote, and nothing has to be
// synchronised. Windows and until are the same linear scans as on the CPU. The arena lies in shared
// memory where it fits, otherwise in device memory. Loads are issued CHUNK at a time, ahead of the
// stores that follow them, which is what hides their latency; reading ahead is safe because every loop
// only overwrites rows that it has already read.

#define LANES 32
#define CHUNK 8

// Instructions and columns, as in lowering.py; gpu.py checks that they agree.
enum { GE, GT, LE, LT, CONSTANT, NEGATE, MINIMUM, MAXIMUM, MINIMUM_ATOM, MAXIMUM_ATOM, EQUIVALENT,
       WINDOW_MIN, WINDOW_MAX, UNTIL_SCAN };
enum { OP, TO, FROM, LEFT, SCRATCH, LENGTH, INPUT, OFFSET, WIDTH, DELAY, COMPARISON, UNUSED, COLUMNS };

struct Smaller {
  template <typename Real> static __device__ __forceinline__ Real of(Real a, Real b) {
    return b < a ? b : a;
  }
};
struct Larger {
  template <typename Real> static __device__ __forceinline__ Real of(Real a, Real b) {
    return b > a ? b : a;
  }
};

template <typename Real>
__device__ __forceinline__ Real atom(int op, Real x, Real threshold, bool boolean) {
  if (!boolean) return op <= GT ? x - threshold : threshold - x;
  bool holds = op == GE ? x >= threshold : op == GT ? x > threshold
             : op == LE ? x <= threshold : x < threshold;
  return holds ? Real(1) : Real(-1);
}

// to[t] = f(to[t] or nothing, from[t]) over `length` rows.
template <typename Real, typename F>
__device__ __forceinline__ void each_row(Real* to, const Real* from, int length, F f) {
  int t = 0;
  for (; t + CHUNK <= length; t += CHUNK) {
    Real a[CHUNK], b[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) { a[k] = to[(t + k) * LANES]; b[k] = from[(t + k) * LANES]; }
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) to[(t + k) * LANES] = f(a[k], b[k]);
  }
  for (; t < length; ++t) to[t * LANES] = f(to[t * LANES], from[t * LANES]);
}

template <typename Real, typename F>
__device__ __forceinline__ void fill_rows(Real* to, const Real* from, int length, F f) {
  int t = 0;
  for (; t + CHUNK <= length; t += CHUNK) {
    Real b[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) b[k] = from[(t + k) * LANES];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) to[(t + k) * LANES] = f(b[k]);
  }
  for (; t < length; ++t) to[t * LANES] = f(from[t * LANES]);
}

// Rows last - 1 down to first become the extreme of themselves and all rows to `last`.
template <typename Extreme, typename Real>
__device__ __forceinline__ void scan_back(Real* x, int first, int last) {
  if (last <= first) return;
  Real running = x[last * LANES];
  int t = last - 1;
  for (; t - CHUNK + 1 >= first; t -= CHUNK) {
    Real a[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) a[k] = x[(t - k) * LANES];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) {
      running = Extreme::of(a[k], running);
      x[(t - k) * LANES] = running;
    }
  }
  for (; t >= first; --t) {
    running = Extreme::of(x[t * LANES], running);
    x[t * LANES] = running;
  }
}

// In place: row t becomes the extreme of rows t ... t + width - 1, clipped at the last input.
template <typename Extreme, typename Real>
__device__ __forceinline__ void window(Real* x, int length, int inputs, int width) {
  if (length == 1) {  // at time 0, where only the result counts
    int stop = width < inputs ? width : inputs;
    Real best = x[0];
    int t = 1;
    for (; t + CHUNK <= stop; t += CHUNK) {
      Real a[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) a[k] = x[(t + k) * LANES];
#pragma unroll
      for (int step = CHUNK / 2; step > 0; step /= 2)
#pragma unroll
        for (int k = 0; k < step; ++k) a[k] = Extreme::of(a[k], a[k + step]);
      best = Extreme::of(best, a[0]);
    }
    for (; t < stop; ++t) best = Extreme::of(best, x[t * LANES]);
    x[0] = best;
    return;
  }
  int whole = inputs - width + 1 < length ? inputs - width + 1 : length;
  if (whole < 0) whole = 0;
  if (width > 1)
    for (int start = 0; start < whole; start += width) {
      scan_back<Extreme>(x, start, start + width - 1);
      int stop = start + width < whole ? start + width : whole;
      if (start + 1 >= stop) continue;
      Real running = x[(start + width) * LANES];
      const Real* ahead = x + (width - 1) * LANES;
      int t = start + 1;
      for (; t + CHUNK <= stop; t += CHUNK) {
        Real a[CHUNK], b[CHUNK];
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) { a[k] = x[(t + k) * LANES]; b[k] = ahead[(t + k) * LANES]; }
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
          running = Extreme::of(running, b[k]);
          x[(t + k) * LANES] = Extreme::of(a[k], running);
        }
      }
      for (; t < stop; ++t) {
        running = Extreme::of(running, ahead[t * LANES]);
        x[t * LANES] = Extreme::of(x[t * LANES], running);
      }
    }
  scan_back<Extreme>(x, whole, inputs - 1);
  for (int t = inputs; t < length; ++t) x[t * LANES] = x[(inputs - 1) * LANES];
}

// to = left U[delay, delay + width - 1] right; see cpu.py and docs/semantics.md.
template <typename Real>
__device__ __forceinline__ void until(Real* to, Real* left, Real* right, Real* scan, int length,
                                      int inputs, int offset, int width, int delay) {
  const Real* later = left + offset * LANES;
  Real u = Smaller::of(later[(inputs - 1) * LANES], right[(inputs - 1) * LANES]);
  scan[(inputs - 1) * LANES] = u;
  int t = inputs - 2;
  for (; t - CHUNK + 1 >= 0; t -= CHUNK) {
    Real a[CHUNK], b[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) { a[k] = later[(t - k) * LANES]; b[k] = right[(t - k) * LANES]; }
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) {
      u = Smaller::of(a[k], Larger::of(b[k], u));
      scan[(t - k) * LANES] = u;
    }
  }
  for (; t >= 0; --t) {
    u = Smaller::of(later[t * LANES], Larger::of(right[t * LANES], u));
    scan[t * LANES] = u;
  }
  if (width <= inputs) {
    int shared = length < inputs ? length : inputs;
    window<Larger>(right, shared, inputs, width);
    each_row(scan, right, shared, [](Real a, Real b) { return Smaller::of(a, b); });
  }
  if (delay > 0) window<Smaller>(left, length, inputs + offset, delay + 1);
  for (int t = 0; t < length; ++t)
    to[t * LANES] = Smaller::of(left[t * LANES], scan[(t < inputs ? t : inputs - 1) * LANES]);
}

// Run one formula for this lane's signal; the result is at the start of the arena. Returns its length.
template <typename Real>
__device__ __forceinline__ int run(const int* table, const Real* values, int first, int last,
                                   const Real* block, int reach, Real* arena, bool boolean) {
  int length = 0;
  for (int k = first; k < last; ++k) {
    const int* row = table + k * COLUMNS;
    int op = row[OP];
    length = row[LENGTH];
    Real* a = arena + row[TO] * LANES;
    if (op <= LT) {
      const Real* x = block + (row[FROM] * reach + row[OFFSET]) * LANES;
      Real threshold = values[k];
      if (boolean) fill_rows(a, x, length, [=](Real v) { return atom(op, v, threshold, true); });
      else if (op <= GT) fill_rows(a, x, length, [=](Real v) { return v - threshold; });
      else fill_rows(a, x, length, [=](Real v) { return threshold - v; });
    } else if (op == MINIMUM_ATOM || op == MAXIMUM_ATOM) {
      const Real* x = block + (row[FROM] * reach + row[OFFSET]) * LANES;
      Real threshold = values[k];
      int comparison = row[COMPARISON];
      if (op == MINIMUM_ATOM)
        each_row(a, x, length, [=](Real u, Real v) {
          return Smaller::of(u, atom(comparison, v, threshold, boolean));
        });
      else
        each_row(a, x, length, [=](Real u, Real v) {
          return Larger::of(u, atom(comparison, v, threshold, boolean));
        });
    } else if (op == MINIMUM) {
      each_row(a, arena + row[FROM] * LANES, length, [](Real u, Real v) { return Smaller::of(u, v); });
    } else if (op == MAXIMUM) {
      each_row(a, arena + row[FROM] * LANES, length, [](Real u, Real v) { return Larger::of(u, v); });
    } else if (op == WINDOW_MIN) {
      window<Smaller>(a, length, row[INPUT], row[WIDTH]);
    } else if (op == WINDOW_MAX) {
      window<Larger>(a, length, row[INPUT], row[WIDTH]);
    } else if (op == UNTIL_SCAN) {
      until(a, arena + row[LEFT] * LANES, arena + row[FROM] * LANES, arena + row[SCRATCH] * LANES,
            length, row[INPUT], row[OFFSET], row[WIDTH], row[DELAY]);
    } else if (op == EQUIVALENT) {
      each_row(a, arena + row[FROM] * LANES, length, [](Real u, Real v) {
        return Smaller::of(Larger::of(-u, v), Larger::of(u, -v));
      });
    } else if (op == NEGATE) {
      fill_rows(a, a, length, [](Real v) { return -v; });
    } else {
      Real value = values[k];
      for (int t = 0; t < length; ++t) a[t * LANES] = value;
    }
  }
  return length;
}

// Task (tile, member): formula members[member] on signals 32 * tile ... + 31. Warps take tasks in turn.
//   table (instructions, COLUMNS), values (instructions,), offsets (formulae + 1,), members (n_members,)
//   block (tiles, channels, reach, 32), out (formulae, n_signals, points)
//   device_arena: arena_rows * 32 numbers a warp, when in_shared is 0.
template <typename Real>
__global__ void evaluate(const int* table, const Real* values, const int* offsets, const int* members,
                         int n_members, const Real* block, int n_tiles, int n_channels, int reach,
                         Real* out, int n_signals, int first_signal, int points, Real* device_arena,
                         int arena_rows, int in_shared, int boolean) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  int lane = threadIdx.x % LANES;
  int warps = blockDim.x / LANES;
  int warp = threadIdx.x / LANES;
  long long step = (long long)gridDim.x * warps;
  for (long long task = (long long)blockIdx.x * warps + warp; task < (long long)n_tiles * n_members;
       task += step) {
    int tile = task / n_members;
    int b = members[task % n_members];
    const Real* x = block + ((long long)tile * n_channels * reach) * LANES + lane;
    Real* arena;
    int length;
    if (in_shared) {  // two calls, so that one compiles to shared-memory instructions
      arena = reinterpret_cast<Real*>(shared_bytes) + warp * arena_rows * LANES + lane;
      length = run(table, values, offsets[b], offsets[b + 1], x, reach, arena, boolean);
    } else {
      long long region = (long long)blockIdx.x * warps + warp;
      arena = device_arena + region * arena_rows * LANES + lane;
      length = run(table, values, offsets[b], offsets[b + 1], x, reach, arena, boolean);
    }
    int n = first_signal + tile * LANES + lane;
    if (n >= n_signals) continue;
    Real* target = out + ((long long)b * n_signals + n) * points;
    for (int t = 0; t < length; ++t) target[t] = arena[t * LANES];
  }
}
