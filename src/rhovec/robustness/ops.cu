// Exact robustness on a GPU: a warp runs one formula on S signals, with T = 32 / S times side by side.
//
// Rows of the arena (see lowering.py) hold one time for the warp's S signals, so the 32 lanes always
// touch 32 neighbouring numbers. Short formulae take S = 32 (a lane a signal); long ones take fewer
// signals, so that their arenas still fit in shared memory many times over, which is what hides its
// latency. Running extremes and until are scans: T times by shuffles, then a carry from the later ones
// (until's step u -> min(hi, max(lo, u)) composes with its like). Windows grow fourfold a pass. Loads
// are issued CHUNK at a time; every pass only overwrites what it has already read.

#define WARP 32
#define ALL 0xffffffffu
#define CHUNK 4

// Instructions and columns, as in lowering.py; a test compares them.
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

// One warp's view: lane = q * S + s is time q (of T at once) of signal s.
template <typename Real, int S>
struct Warp {
  static const int T = WARP / S;
  int lane, s, q;

  __device__ explicit Warp(int lane) : lane(lane), s(lane % S), q(lane / S) {}

  // to[e] = store(load(e)) for all elements e of n rows; `load` may look ahead, never back.
  template <typename Load, typename Store>
  __device__ __forceinline__ void sweep(int n, Load load, Store store) const {
    int stop = n * S;
    for (int base = 0; base < stop; base += WARP * CHUNK) {
      Real v[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        int e = base + k * WARP + lane;
        if (e < stop) v[k] = load(e);
      }
      __syncwarp();
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        int e = base + k * WARP + lane;
        if (e < stop) store(e, v[k]);
      }
    }
    __syncwarp();
  }

  // Rows first ... last become the extreme of themselves and all rows to `last`.
  template <typename Extreme>
  __device__ __forceinline__ void scan_back(Real* x, int first, int last) const {
    Real carry = x[last * S + s];
    for (int top = last; top >= first; top -= T * CHUNK) {
      Real v[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        int t = top - k * T - (T - 1) + q;
        v[k] = t >= first ? x[t * S + s] : carry;
      }
#pragma unroll
      for (int d = 1; d < T; d *= 2)
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
          Real later = __shfl_down_sync(ALL, v[k], d * S);
          if (q + d < T) v[k] = Extreme::of(v[k], later);
        }
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        v[k] = Extreme::of(v[k], carry);
        carry = T > 1 ? __shfl_sync(ALL, v[k], s) : v[k];
        int t = top - k * T - (T - 1) + q;
        if (t >= first) x[t * S + s] = v[k];
      }
    }
    __syncwarp();
  }

  // In place: row t becomes the extreme of rows t ... t + width - 1, clipped at the last input.
  template <typename Extreme>
  __device__ __forceinline__ void window(Real* x, int length, int inputs, int width) const {
    if (length == 1) {  // at time 0, where only the result counts
      int stop = width < inputs ? width : inputs;
      Real best = x[s];
      for (int t = q; t < stop; t += T * CHUNK) {
        Real v[CHUNK];
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) v[k] = t + k * T < stop ? x[(t + k * T) * S + s] : best;
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) best = Extreme::of(best, v[k]);
      }
#pragma unroll
      for (int d = S; d < WARP; d *= 2) best = Extreme::of(best, __shfl_xor_sync(ALL, best, d));
      __syncwarp();
      if (q == 0) x[s] = best;
      __syncwarp();
      return;
    }
    int end = inputs - 1;
    if (width >= inputs) {
      scan_back<Extreme>(x, 0, end);
    } else {
      for (int seen = 1; seen < width;) {  // row t holds the extreme of `seen` rows; take up to four
        int grown = 4 * seen < width ? 4 * seen : width;
        int one = seen < grown - seen ? seen : grown - seen;
        int two = 2 * seen < grown - seen ? 2 * seen : grown - seen;
        int three = grown - seen;
        auto load = [=](int e) {
          int t = e / S;
          Real a = x[e], b = x[(t + one < end ? t + one : end) * S + s];
          Real v = Extreme::of(a, b);
          if (two > one) v = Extreme::of(v, x[(t + two < end ? t + two : end) * S + s]);
          if (three > two) v = Extreme::of(v, x[(t + three < end ? t + three : end) * S + s]);
          return v;
        };
        int rows = grown < width || length > inputs ? inputs : length;
        sweep(rows, load, [=](int e, Real v) { x[e] = v; });
        seen = grown;
      }
    }
    for (int t = inputs + q; t < length; t += T) x[t * S + s] = x[end * S + s];
    __syncwarp();
  }

  // to = left U[delay, delay + width - 1] right; see cpu.py and docs/semantics.md.
  __device__ __forceinline__ void until(Real* to, Real* left, Real* right, Real* scan, int length,
                                        int inputs, int offset, int width, int delay) const {
    const Real* later = left + offset * S;
    Real carry = Real(-1) / Real(0);
    for (int top = inputs - 1; top >= 0; top -= T * CHUNK) {
      Real lo[CHUNK], hi[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        int t = top - k * T - (T - 1) + q;
        hi[k] = t >= 0 ? later[t * S + s] : Real(0);
        lo[k] = t >= 0 ? Smaller::of(hi[k], right[t * S + s]) : Real(0);
      }
#pragma unroll
      for (int d = 1; d < T; d *= 2)
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
          Real lower = __shfl_down_sync(ALL, lo[k], d * S);
          Real upper = __shfl_down_sync(ALL, hi[k], d * S);
          if (q + d < T) {
            Real before = lo[k];
            lo[k] = Smaller::of(hi[k], Larger::of(before, lower));
            hi[k] = Smaller::of(hi[k], Larger::of(before, upper));
          }
        }
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        Real u = Smaller::of(hi[k], Larger::of(lo[k], carry));
        carry = T > 1 ? __shfl_sync(ALL, u, s) : u;
        int t = top - k * T - (T - 1) + q;
        if (t >= 0) scan[t * S + s] = u;
      }
    }
    __syncwarp();
    if (width <= inputs) {
      int shared = length < inputs ? length : inputs;
      window<Larger>(right, shared, inputs, width);
      sweep(shared, [=](int e) { return Smaller::of(scan[e], right[e]); },
            [=](int e, Real v) { scan[e] = v; });
    }
    if (delay > 0) window<Smaller>(left, length, inputs + offset, delay + 1);
    sweep(length,
          [=](int e) {
            return Smaller::of(left[e], scan[e / S < inputs ? e : (inputs - 1) * S + s]);
          },
          [=](int e, Real v) { to[e] = v; });
  }

  // Run one formula; the result is at the start of the arena. Returns its length.
  // x[channel * channel_step + time * time_step] is this lane's signal.
  __device__ __forceinline__ int run(const int* table, const Real* values, int first, int last,
                                     const Real* x, int channel_step, int time_step, Real* arena,
                                     bool boolean) const {
    int length = 0;
    for (int k = first; k < last; ++k) {
      const int* row = table + k * COLUMNS;
      int op = row[OP];
      length = row[LENGTH];
      Real* a = arena + row[TO] * S;
      const Real* b = arena + row[FROM] * S;
      auto put = [=](int e, Real v) { a[e] = v; };
      if (op <= LT || op == MINIMUM_ATOM || op == MAXIMUM_ATOM) {
        const Real* from = x + row[FROM] * channel_step + row[OFFSET] * time_step;
        Real threshold = values[k];
        int comparison = op <= LT ? op : row[COMPARISON];
        auto value = [=](int e) {
          return atom(comparison, from[e / S * time_step], threshold, boolean);
        };
        if (op <= LT) sweep(length, value, put);
        else if (op == MINIMUM_ATOM)
          sweep(length, [=](int e) { return Smaller::of(a[e], value(e)); }, put);
        else
          sweep(length, [=](int e) { return Larger::of(a[e], value(e)); }, put);
      } else if (op == MINIMUM) {
        sweep(length, [=](int e) { return Smaller::of(a[e], b[e]); }, put);
      } else if (op == MAXIMUM) {
        sweep(length, [=](int e) { return Larger::of(a[e], b[e]); }, put);
      } else if (op == WINDOW_MIN) {
        window<Smaller>(a, length, row[INPUT], row[WIDTH]);
      } else if (op == WINDOW_MAX) {
        window<Larger>(a, length, row[INPUT], row[WIDTH]);
      } else if (op == UNTIL_SCAN) {
        until(a, arena + row[LEFT] * S, arena + row[FROM] * S, arena + row[SCRATCH] * S, length,
              row[INPUT], row[OFFSET], row[WIDTH], row[DELAY]);
      } else if (op == EQUIVALENT) {
        sweep(length,
              [=](int e) {
                return Smaller::of(Larger::of(-a[e], b[e]), Larger::of(a[e], -b[e]));
              },
              put);
      } else if (op == NEGATE) {
        sweep(length, [=](int e) { return -a[e]; }, put);
      } else {
        Real value = values[k];
        sweep(length, [=](int) { return value; }, put);
      }
    }
    return length;
  }
};

// Task (group, member): formula members[member] on the S signals of a group. Warps take tasks in turn.
//   table (instructions, COLUMNS), values (instructions,), offsets (formulae + 1,), members (n_members,)
//   block: signals of this slice; signal n, channel c, time t is at
//     n / 32 * tile_step + n % 32 * signal_step + c * channel_step + t * time_step
//   out (formulae, n_signals, points); the slice is signals first_signal ... + n_slice - 1
//   device_arena: arena_rows * S numbers a warp, when in_shared is 0.
template <typename Real, int S>
__global__ void evaluate(const int* table, const Real* values, const int* offsets, const int* members,
                         int n_members, const Real* block, int tile_step, int signal_step,
                         int channel_step, int time_step, Real* out, int n_signals, int first_signal,
                         int n_slice, int points, Real* device_arena, int arena_rows, int in_shared,
                         int boolean) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  int warps = blockDim.x / WARP;
  int index = threadIdx.x / WARP;
  Warp<Real, S> warp(threadIdx.x % WARP);
  long long tasks = (long long)((n_slice + S - 1) / S) * n_members;
  for (long long task = (long long)blockIdx.x * warps + index; task < tasks;
       task += (long long)gridDim.x * warps) {
    int b = members[task % n_members];
    int n = (int)(task / n_members) * S + warp.s;
    int held = n < n_slice ? n : n_slice - 1;  // lanes past the last signal repeat it
    const Real* x = block + (long long)(held / WARP) * tile_step + held % WARP * signal_step;
    Real* arena;
    int length;
    if (in_shared) {  // two calls, so that one compiles to shared-memory instructions
      arena = reinterpret_cast<Real*>(shared_bytes) + index * arena_rows * S;
      length = warp.run(table, values, offsets[b], offsets[b + 1], x, channel_step, time_step, arena,
                        boolean);
    } else {
      arena = device_arena + ((long long)blockIdx.x * warps + index) * arena_rows * S;
      length = warp.run(table, values, offsets[b], offsets[b + 1], x, channel_step, time_step, arena,
                        boolean);
    }
    Real* target = out + ((long long)b * n_signals + first_signal + n) * points;
    if (n < n_slice)
      for (int t = warp.q; t < length; t += warp.T) target[t] = arena[t * S + warp.s];
    __syncwarp();
  }
}
