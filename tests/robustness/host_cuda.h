// Just enough CUDA to compile ops.cu with a C++ compiler and run it: the 32 lanes of a warp are
// coroutines that hand over to each other at every warp-wide operation, and warps run in turn.
#pragma once
#include <cmath>
#include <cstdlib>
#include <functional>
#include <ucontext.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __align__(n)

struct Index { int x; };
static Index threadIdx, blockIdx, blockDim, gridDim;
unsigned char shared_bytes[1 << 22];

namespace host {
const int LANES = 32;
ucontext_t caller, lanes[LANES];
char stacks[LANES][1 << 16];
bool done[LANES];
int current;
double exchange[2][LANES];  // two, so that a lane may send again before all have read
int turn[LANES];
int first_thread;
std::function<void()> body;

inline void hand_over() {
  int from = current;
  for (int step = 1; step <= LANES; ++step) {
    int next = (from + step) % LANES;
    if (done[next]) continue;
    if (next == from) return;
    current = next;
    swapcontext(&lanes[from], &lanes[next]);
    return;
  }
  setcontext(&caller);
}
inline void start() {
  threadIdx.x = first_thread + current;
  body();
  done[current] = true;
  hand_over();
}
template <typename Real> Real shuffle(Real value, int source) {
  double* mailbox = exchange[turn[current]++ % 2];
  mailbox[current] = value;
  hand_over();
  return Real(mailbox[source]);
}
// Run `f` by the 32 threads from `first` on.
inline void run_warp(int first, std::function<void()> f) {
  first_thread = first;
  body = f;
  for (int i = 0; i < LANES; ++i) {
    done[i] = false;
    turn[i] = 0;
    getcontext(&lanes[i]);
    lanes[i].uc_stack.ss_sp = stacks[i];
    lanes[i].uc_stack.ss_size = sizeof stacks[i];
    lanes[i].uc_link = nullptr;
    makecontext(&lanes[i], start, 0);
  }
  current = 0;
  swapcontext(&caller, &lanes[0]);
}
}  // namespace host

inline void __trap() { abort(); }
inline void __syncwarp() { host::hand_over(); }
template <typename Real> Real __shfl_sync(unsigned, Real v, int source) {
  return host::shuffle(v, source % host::LANES);
}
template <typename Real> Real __shfl_down_sync(unsigned, Real v, int delta) {
  int source = host::current + delta;
  return host::shuffle(v, source < host::LANES ? source : host::current);
}
template <typename Real> Real __shfl_xor_sync(unsigned, Real v, int mask) {
  return host::shuffle(v, host::current ^ mask);
}
