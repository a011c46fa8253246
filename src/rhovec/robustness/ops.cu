// Exact robustness on a GPU: a warp runs one formula on S traces, with T = 32 / S times side by side.
//
// Rows of the arena (see lowering.py) hold one time for the warp's S traces, so the 32 lanes always
// touch 32 neighbouring numbers. Short formulae take S = 32 (one lane per trace); long ones take fewer
// traces, so that their arenas still fit in shared memory many times over, which is what hides its
// latency. Running extremes and until are scans: T times by shuffles, then a carry from the later ones
// (until's step u -> min(hi, max(lo, u)) composes with its like). Loads are issued CHUNK at a time;
// every pass only overwrites what it has already read.

#define WARP 32
#define ALL 0xffffffffu

// Instructions and columns, as in lowering.py; a test compares them.
enum { GE, GT, LE, LT };  // as in operators.py
enum { ATOM, MINIMUM_ATOM, MAXIMUM_ATOM, CONSTANT, NEGATE, MINIMUM, MAXIMUM, EQUIVALENT, WINDOW_MIN,
       WINDOW_MAX, UNTIL_SCAN, REVERSE };
enum { OP, TO, FROM, LEFT, SCRATCH, LENGTH, INPUT, OFFSET, WIDTH, DELAY, COMPARISON, START, COLUMNS };

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
__device__ __forceinline__ Real truth(int op, Real x, Real threshold) {
  bool holds = op == GE ? x >= threshold : op == GT ? x > threshold
             : op == LE ? x <= threshold : x < threshold;
  return holds ? Real(1) : Real(-1);
}

// One warp's view: lane = q * S + s is time q (of T at once) of trace s. Element e of a row range is
// at time e / S; a lane's elements are lane, lane + 32, ...
template <typename Real, int S>
struct Warp {
  static const int T = WARP / S;
  static const int CHUNK = S == 1 ? 2 : 4;  // loads in flight; measured
  static const int TRACE_STEP = S == 1 ? 1 : T;  // elements of `block` between two of ours
  int lane, s, q;

  __device__ explicit Warp(int lane) : lane(lane), s(lane % S), q(lane / S) {}

  // store(e, load(e)) for the elements of rows first ... last - 1; `load` may look ahead, never back.
  template <typename Load, typename Store>
  __device__ __forceinline__ void sweep(int first, int last, Load load, Store store) const {
    int base = first * S + lane, stop = last * S;
    for (; base - lane + WARP * CHUNK <= stop; base += WARP * CHUNK) {
      Real v[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) v[k] = load(base + k * WARP);
      if (T > 1) __syncwarp();
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) store(base + k * WARP, v[k]);
    }
    for (; base - lane < stop; base += WARP) {
      Real v = base < stop ? load(base) : Real(0);
      if (T > 1) __syncwarp();
      if (base < stop) store(base, v);
    }
    if (T > 1) __syncwarp();
  }

  // Rows first ... last become the extreme of themselves and all rows to `last`.
  template <typename Extreme>
  __device__ __forceinline__ void scan_back(Real* x, int first, int last) const {
    Real carry = x[last * S + s];
    int top = last;
    for (; top - T * CHUNK + 1 >= first; top -= T * CHUNK) {
      Real* at = x + (top - (T - 1)) * S + lane;
      Real v[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) v[k] = at[-k * WARP];
#pragma unroll
      for (int d = 1; d < T; d *= 2)
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {  // past the last lane a lane gets its own value back
          v[k] = Extreme::of(v[k], __shfl_down_sync(ALL, v[k], d * S));
        }
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        v[k] = Extreme::of(v[k], carry);
        carry = T > 1 ? __shfl_sync(ALL, v[k], s) : v[k];
        at[-k * WARP] = v[k];
      }
    }
    for (; top >= first; top -= T) {
      int t = top - (T - 1) + q;
      Real v = t >= first ? x[t * S + s] : carry;
#pragma unroll
      for (int d = 1; d < T; d *= 2) v = Extreme::of(v, __shfl_down_sync(ALL, v, d * S));
      v = Extreme::of(v, carry);
      carry = T > 1 ? __shfl_sync(ALL, v, s) : v;
      if (t >= first) x[t * S + s] = v;
    }
    if (T > 1) __syncwarp();
  }

  // Rows 0 ... whole - 1 become the extreme of `width` rows from there on, for a lane a trace: in
  // chunks of `width` rows, the end of one chunk and the start of the next.
  template <typename Extreme>
  __device__ __forceinline__ void window_by_chunks(Real* x, int whole, int width) const {
    for (int start = 0; start < whole; start += width) {
      scan_back<Extreme>(x, start, start + width - 1);
      int stop = start + width < whole ? start + width : whole;
      if (start + 1 >= stop) continue;
      Real running = x[(start + width) * S + s];
      sweep(start + 1, stop, [=](int e) { return x[e + (width - 1) * S]; },
            [=, &running](int e, Real ahead) {
              running = Extreme::of(running, ahead);
              x[e] = Extreme::of(x[e], running);
            });
    }
  }

  // The same for times side by side, also where a window is clipped at row `end`: each pass joins two
  // or four neighbouring extremes of `seen` rows.
  template <typename Extreme>
  __device__ __forceinline__ void window_by_passes(Real* x, int length, int end, int width) const {
    auto put = [=](int e, Real v) { x[e] = v; };
    for (int seen = 1; seen < width;) {
      int grown = 4 * seen < width ? 4 * seen : width;
      int far = grown - seen;
      int rows = grown < width ? end + 1 : length < end + 1 ? length : end + 1;
      int inside = rows < end - far + 1 ? rows : end - far + 1;  // rows that are not clipped
      if (far <= seen) {
        sweep(0, inside, [=](int e) { return Extreme::of(x[e], x[e + far * S]); }, put);
      } else {
        int middle = 2 * seen < far ? 2 * seen : far;
        sweep(0, inside,
              [=](int e) {
                return Extreme::of(Extreme::of(x[e], x[e + seen * S]),
                                   Extreme::of(x[e + middle * S], x[e + far * S]));
              },
              put);
      }
      scan_back_clipped<Extreme>(x, inside, rows, seen, far, end);
      seen = grown;
    }
  }

  // The tail of a pass: rows whose windows would run past row `end`.
  template <typename Extreme>
  __device__ __forceinline__ void scan_back_clipped(Real* x, int first, int last, int seen, int far,
                                                    int end) const {
    sweep(first < 0 ? 0 : first, last,
          [=](int e) {
            int t = e / S;
            Real v = x[e];
            for (int d = seen; d < far + seen; d += seen) {
              int at = t + (d < far ? d : far);
              v = Extreme::of(v, x[(at < end ? at : end) * S + s]);
            }
            return v;
          },
          [=](int e, Real v) { x[e] = v; });
  }

  // In place: row t becomes the extreme of rows t ... t + width - 1, clipped at the last input.
  template <typename Extreme>
  __device__ __forceinline__ void window(Real* x, int length, int inputs, int width) const {
    int end = inputs - 1;
    if (length == 1) {  // at time 0, where only the result counts
      int stop = width < inputs ? width : inputs;
      Real best = x[s];
      int t = q;
      for (; t + T * (CHUNK - 1) < stop; t += T * CHUNK) {
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) best = Extreme::of(best, x[(t + k * T) * S + s]);
      }
      for (; t < stop; t += T) best = Extreme::of(best, x[t * S + s]);
#pragma unroll
      for (int d = S; d < WARP; d *= 2) best = Extreme::of(best, __shfl_xor_sync(ALL, best, d));
      if (T > 1) __syncwarp();
      if (q == 0) x[s] = best;
      if (T > 1) __syncwarp();
      return;
    }
    if (width >= inputs) {
      scan_back<Extreme>(x, 0, end);
    } else if (T > 1) {
      window_by_passes<Extreme>(x, length, end, width);
    } else if (width > 1) {
      int whole = inputs - width + 1 < length ? inputs - width + 1 : length;
      window_by_chunks<Extreme>(x, whole, width);
      scan_back<Extreme>(x, whole, end);
    }
    for (int t = inputs + q; t < length; t += T) x[t * S + s] = x[end * S + s];
    if (T > 1) __syncwarp();
  }

  // to = left U[delay, delay + width - 1] right; see cpu.py and docs/semantics.md.
  __device__ __forceinline__ void until(Real* to, Real* left, Real* right, Real* scan, int length,
                                        int inputs, int offset, int width, int delay) const {
    const Real* later = left + offset * S;
    Real carry = Real(-1) / Real(0);
    int top = inputs - 1;
    for (; top - T * CHUNK + 1 >= 0; top -= T * CHUNK) {
      int at = (top - (T - 1)) * S + lane;
      Real lo[CHUNK], hi[CHUNK];
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        hi[k] = later[at - k * WARP];
        lo[k] = Smaller::of(hi[k], right[at - k * WARP]);
      }
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) compose(lo[k], hi[k]);
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        Real u = Smaller::of(hi[k], Larger::of(lo[k], carry));
        carry = T > 1 ? __shfl_sync(ALL, u, s) : u;
        scan[at - k * WARP] = u;
      }
    }
    for (; top >= 0; top -= T) {
      int t = top - (T - 1) + q;
      Real hi = t >= 0 ? later[t * S + s] : Real(0);
      Real lo = t >= 0 ? Smaller::of(hi, right[t * S + s]) : Real(0);
      compose(lo, hi);
      Real u = Smaller::of(hi, Larger::of(lo, carry));
      carry = T > 1 ? __shfl_sync(ALL, u, s) : u;
      if (t >= 0) scan[t * S + s] = u;
    }
    if (T > 1) __syncwarp();
    if (width <= inputs) {
      int shared = length < inputs ? length : inputs;
      window<Larger>(right, shared, inputs, width);
      sweep(0, shared, [=](int e) { return Smaller::of(scan[e], right[e]); },
            [=](int e, Real v) { scan[e] = v; });
    }
    if (delay > 0) window<Smaller>(left, length, inputs + offset, delay + 1);
    int both = length < inputs ? length : inputs;
    auto put = [=](int e, Real v) { to[e] = v; };
    Real last = scan[(inputs - 1) * S + s];
    sweep(0, both, [=](int e) { return Smaller::of(left[e], scan[e]); }, put);
    sweep(both, length, [=](int e) { return Smaller::of(left[e], last); }, put);
  }

  // Steps u -> min(hi, max(lo, u)) of T times become those from each time to the last of them.
  __device__ __forceinline__ void compose(Real& lo, Real& hi) const {
#pragma unroll
    for (int d = 1; d < T; d *= 2) {
      Real lower = __shfl_down_sync(ALL, lo, d * S);
      Real upper = __shfl_down_sync(ALL, hi, d * S);
      // Past the last lane a lane gets its own step back, which composed with itself is itself.
      Real before = lo;
      lo = Smaller::of(hi, Larger::of(before, lower));
      hi = Smaller::of(hi, Larger::of(before, upper));
    }
  }

  // Run one formula; the result is at the start of the arena. Returns its length.
  // x + channel * channel_step is the first row of a channel of this lane's trace.
  __device__ __forceinline__ int run(const int* table, const Real* values, int first, int last,
                                     const Real* x, int channel_step, Real* arena,
                                     bool boolean) const {
    int length = 0;
    for (int k = first; k < last; ++k) {
      const int* row = table + k * COLUMNS;
      int op = row[OP];
      length = row[LENGTH];
      Real* a = arena + row[TO] * S;
      const Real* b = arena + row[FROM] * S;
      auto put = [=](int e, Real v) { a[e] = v; };
      if (op == ATOM || op == MINIMUM_ATOM || op == MAXIMUM_ATOM) {
        // Element e is at time e / S, so e * TRACE_STEP from where a lane 0 would start.
        const Real* from = x + row[FROM] * channel_step
                         + (row[OFFSET] * S - s) * TRACE_STEP;
        Real threshold = values[k];
        int comparison = row[COMPARISON];
        if (boolean) {
          auto value = [=](int e) { return truth(comparison, from[e * TRACE_STEP], threshold); };
          join(op, a, length, value);
        } else {
          // x - c and c - x are one multiplication by +-1 apart, which is exact.
          Real sign = comparison == GE || comparison == GT ? Real(1) : Real(-1);
          auto value = [=](int e) { return sign * (from[e * TRACE_STEP] - threshold); };
          join(op, a, length, value);
        }
      } else if (op == MINIMUM) {
        sweep(0, length, [=](int e) { return Smaller::of(a[e], b[e]); }, put);
      } else if (op == MAXIMUM) {
        sweep(0, length, [=](int e) { return Larger::of(a[e], b[e]); }, put);
      } else if (op == WINDOW_MIN) {
        window<Smaller>(a, length, row[INPUT], row[WIDTH]);
      } else if (op == WINDOW_MAX) {
        window<Larger>(a, length, row[INPUT], row[WIDTH]);
      } else if (op == UNTIL_SCAN) {
        until(a, arena + row[LEFT] * S, arena + row[FROM] * S, arena + row[SCRATCH] * S, length,
              row[INPUT], row[OFFSET], row[WIDTH], row[DELAY]);
      } else if (op == EQUIVALENT) {
        sweep(0, length,
              [=](int e) {
                return Smaller::of(Larger::of(-a[e], b[e]), Larger::of(a[e], -b[e]));
              },
              put);
      } else if (op == REVERSE) {
        reverse(a, length);
      } else if (op == NEGATE) {
        sweep(0, length, [=](int e) { return -a[e]; }, put);
      } else if (op == CONSTANT) {
        Real value = values[k];
        sweep(0, length, [=](int) { return value; }, put);
      } else {
        __trap();  // no such instruction
      }
    }
    return length;
  }

  // In place: the first row becomes the last one.
  __device__ __forceinline__ void reverse(Real* a, int length) const {
    for (int t = q; t < length / 2; t += T) {
      Real* early = a + t * S + s;
      Real* late = a + (length - 1 - t) * S + s;
      Real v = *early;
      *early = *late;
      *late = v;
    }
    if (T > 1) __syncwarp();
  }

  // a = value, min(a, value) or max(a, value).
  template <typename Value>
  __device__ __forceinline__ void join(int op, Real* a, int length, Value value) const {
    auto put = [=](int e, Real v) { a[e] = v; };
    if (op == MINIMUM_ATOM)
      sweep(0, length, [=](int e) { return Smaller::of(a[e], value(e)); }, put);
    else if (op == MAXIMUM_ATOM)
      sweep(0, length, [=](int e) { return Larger::of(a[e], value(e)); }, put);
    else
      sweep(0, length, value, put);
  }
};

// Task (group, member): formula members[member] on the S traces of a group. Warps take tasks in turn.
//   table (instructions, COLUMNS), values (instructions,), offsets (formulae + 1,), members (n_members,)
//   block: traces of this slice; trace n, channel c is at n / 32 * tile_step + n % 32 * trace_step
//     + c * channel_step; its times are 32 apart, or side by side for S = 1
//   out (formulae, n_traces, points); the slice is traces first_trace ... + n_slice - 1
//   device_arena: arena_rows * S numbers a warp, when in_shared is 0.
template <typename Real, int S>
__global__ void evaluate(const int* table, const Real* values, const int* offsets, const int* members,
                         int n_members, const Real* block, int tile_step, int trace_step,
                         int channel_step, Real* out, int n_traces, int first_trace, int n_slice,
                         int points, Real* device_arena, int arena_rows, int in_shared, int boolean) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  int warps = blockDim.x / WARP;
  int index = threadIdx.x / WARP;
  Warp<Real, S> warp(threadIdx.x % WARP);
  long long tasks = (long long)((n_slice + S - 1) / S) * n_members;
  for (long long task = (long long)blockIdx.x * warps + index; task < tasks;
       task += (long long)gridDim.x * warps) {
    int b = members[task % n_members];
    int n = (int)(task / n_members) * S + warp.s;
    int held = n < n_slice ? n : n_slice - 1;  // lanes past the last trace repeat it
    const Real* x = block + (long long)(held / WARP) * tile_step + held % WARP * trace_step;
    Real* arena;
    int length;
    if (in_shared) {  // two calls, so that one compiles to shared-memory instructions
      arena = reinterpret_cast<Real*>(shared_bytes) + index * arena_rows * S;
      length = warp.run(table, values, offsets[b], offsets[b + 1], x, channel_step, arena, boolean);
    } else {
      arena = device_arena + ((long long)blockIdx.x * warps + index) * arena_rows * S;
      length = warp.run(table, values, offsets[b], offsets[b + 1], x, channel_step, arena, boolean);
    }
    int start = table[(offsets[b + 1] - 1) * COLUMNS + START];
    Real* target = out + ((long long)b * n_traces + first_trace + n) * points + start;
    if (n < n_slice)
      for (int t = warp.q; t < length; t += warp.T) target[t] = arena[t * S + warp.s];
    __syncwarp();
  }
}
