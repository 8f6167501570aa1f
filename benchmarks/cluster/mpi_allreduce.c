// SPDX-License-Identifier: Apache-2.0
// The all-reduce of an MPI over the same links: median seconds per size, as JSON lines like those of
// ddp_replay.py --allreduce.
//
//   mpicc -O2 mpi_allreduce.c -o mpi_allreduce
//   cluster.py mpi --nodes 4 --rate 1Gbit -- ./mpi_allreduce REPETITIONS BYTES...
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { kWarmUp = 3 };

static double CpuSeconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double Median(double* values, int count) {
  qsort(values, (size_t)count, sizeof(double), Compare);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// All-reduces `bytes` in place again and again and prints the medians. Aborts the job on a wrong sum.
static void Measure(long bytes, int repetitions, int rank, int size) {
  const int count = (int)(bytes / 4 > 0 ? bytes / 4 : 1);
  float* values = malloc(sizeof(float) * (size_t)count);
  double* seconds = malloc(sizeof(double) * (size_t)repetitions);
  double* cpu = malloc(sizeof(double) * (size_t)repetitions);
  if (!values || !seconds || !cpu) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = -kWarmUp; i < repetitions; ++i) {
    for (int k = 0; k < count; ++k) values[k] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime(), used = CpuSeconds();
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) {
      seconds[i] = MPI_Wtime() - began;
      cpu[i] = CpuSeconds() - used;
    }
    for (int k = 0; k < count; ++k) {
      if (values[k] != (float)size) {
        fprintf(stderr, "mpi_allreduce: the sum of %ld bytes is wrong\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
  const double median = Median(seconds, repetitions);
  printf("{\"rank\": %d, \"summary\": {\"mode\": \"mpi\", \"allreduce_bytes\": %ld, "
         "\"median_seconds\": %.9f, \"median_cpu_seconds\": %.9f, \"least_seconds\": %.9f, "
         "\"most_seconds\": %.9f}}\n",
         rank, bytes, median, Median(cpu, repetitions), seconds[0], seconds[repetitions - 1]);
  fflush(stdout);
  free(values);
  free(seconds);
  free(cpu);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int repetitions = argc > 1 ? atoi(argv[1]) : 0;
  if (repetitions < 1 || argc < 3) {
    if (rank == 0) fprintf(stderr, "mpi_allreduce: expected REPETITIONS BYTES...\n");
    MPI_Finalize();
    return 2;
  }
  for (int i = 2; i < argc; ++i) Measure(atol(argv[i]), repetitions, rank, size);
  MPI_Finalize();
  return 0;
}
