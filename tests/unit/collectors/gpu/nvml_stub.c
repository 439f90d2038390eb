/* A small libnvidia-ml.so.1: one GPU, fixed answers, the calls and structures of nvml.h that the test needs. What is
 * not here is missing in "this driver". */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };

typedef struct { u32 id, scope; long long timestamp, latency; u32 type, result; union { double d; u32 u; u64 ull; int s; } value; } field_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_t;
typedef struct { u32 gpu, memory; } utilization_t;
typedef struct { u32 version, sensor; int temperature; } temperature_t;
typedef struct { u32 version; int margin; } margin_t;
typedef struct { u32 pid; u64 used; u32 instance, compute; } process_t;
typedef struct { u64 at; u32 pid, sm, mem, enc, dec, jpg, ofa; } use_t;
typedef struct { u32 version, count; u64 since; use_t *uses; } uses_t;
typedef struct { u32 id, result; double value; char *names[3]; } metric_t;
typedef struct { u32 version, count; int *older, *newer; metric_t metrics[]; } metrics_t;
typedef struct { u32 version, supported; } gpm_support_t;
typedef struct { void *gpu; u64 kind, data; u32 instance, compute; } event_t;

static int gpu, events, samples;
static u64 energy = 1000;

static int text(char *to, u32 length, const char *from) { strncpy(to, from, length); return SUCCESS; }

int nvmlInitWithFlags(u32 flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlSystemGetDriverVersion(char *to, u32 length) { return text(to, length, "570.1"); }
int nvmlSystemGetNVMLVersion(char *to, u32 length) { return text(to, length, "12.570.1"); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12080; return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) { (void)index; *handle = &gpu; return SUCCESS; }
int nvmlDeviceGetName(void *handle, char *to, u32 length) { (void)handle; return text(to, length, "NVIDIA Stub"); }
int nvmlDeviceGetClockInfo(void *handle, u32 kind, u32 *clock) { (void)handle; *clock = kind == 1 ? 1980 : 3201; return SUCCESS; }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *bits) { (void)handle; *bits = 1; return SUCCESS; }
int nvmlDeviceGetEccMode(void *handle, u32 *now, u32 *pending) { (void)handle; *now = 1; *pending = 0; return SUCCESS; }

int nvmlDeviceGetFieldValues(void *handle, int count, field_t *fields) {
    (void)handle;
    for (int i = 0; i < count; i++) {
        field_t *field = &fields[i];
        field->result = SUCCESS;
        switch (field->id) {
        case 185: field->type = 1; field->value.u = 412500; break;
        case 83: field->type = 3; field->value.ull = energy += 5000000; break;
        case 82: field->type = 5; field->value.s = 71; break;
        case 91: field->type = 1; field->value.u = 2; break;
        case 161: field->type = 3; field->value.ull = field->scope; field->result = field->scope > 1 ? NOT_SUPPORTED : 0; break;
        case 165: field->type = 1; field->value.u = 1; break;
        default: field->result = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_t *memory) {
    (void)handle;
    memory->total = 1000; memory->reserved = 50; memory->free = 700; memory->used = 250;
    return memory->version == 0x02000028 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *to) { (void)handle; to->gpu = 98; to->memory = 40; return SUCCESS; }
int nvmlDeviceGetTemperatureV(void *handle, temperature_t *to) { (void)handle; to->temperature = 55; return SUCCESS; }
int nvmlDeviceGetMarginTemperature(void *handle, margin_t *to) { (void)handle; to->margin = -3; return SUCCESS; }

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, process_t *to) {
    (void)handle;
    if (*count < 2) { *count = 2; return INSUFFICIENT_SIZE; }
    *count = 2;
    to[0] = (process_t){4100, 200, 0xffffffff, 0xffffffff};
    to[1] = (process_t){4200, ~0ull, 0xffffffff, 0xffffffff}; /* not available */
    return SUCCESS;
}
int nvmlDeviceGetProcessesUtilizationInfo(void *handle, uses_t *to) {
    (void)handle;
    if (to->since >= 1700000000000000ull) { to->count = 0; return SUCCESS; }
    if (to->count < 1) { to->count = 1; return INSUFFICIENT_SIZE; }
    to->uses[0] = (use_t){1700000000000000ull, 4100, 87, 1, 2, 3, 4, 5};
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(void *handle, gpm_support_t *to) { (void)handle; to->supported = 1; return SUCCESS; }
int nvmlGpmSampleAlloc(int **sample) { *sample = calloc(1, sizeof(int)); return SUCCESS; }
int nvmlGpmSampleFree(int *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(void *handle, int *sample) { (void)handle; *sample = ++samples; return SUCCESS; }
int nvmlGpmMetricsGet(metrics_t *wanted) {
    for (u32 i = 0; i < wanted->count; i++) {
        metric_t *metric = &wanted->metrics[i];
        metric->result = metric->id < 60 ? SUCCESS : NOT_SUPPORTED;
        metric->value = metric->id == 2 ? 10.0 * (*wanted->newer - *wanted->older) : metric->id;
    }
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) { *set = &events; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(void *handle, u64 *kinds) { (void)handle; *kinds = 0xf; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *handle, u64 kinds, void *set) { (void)handle; (void)set; return kinds == 8 ? SUCCESS : NOT_SUPPORTED; }
int nvmlEventSetWait_v2(void *set, event_t *to, u32 timeout_ms) {
    static int given;
    (void)set;
    if (!given++) { *to = (event_t){&gpu, 8, 79, 0xffffffff, 0xffffffff}; return SUCCESS; }
    usleep(timeout_ms * 1000);
    return TIMEOUT;
}
