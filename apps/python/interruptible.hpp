// Long work on behalf of Python: without the interpreter's lock, stopped by Ctrl-C.
#pragma once

#include <atomic>
#include <functional>

namespace kvbench::python {

// Does `work` on a thread of its own, so that OpenMP's threads end with it: a process that is
// forked later finds none of them missing. Called with the interpreter's lock, which is free
// meanwhile.
//
// One work at a time; others wait. While the calling thread waits it runs Python's signal handlers
// (which Python does on the main thread alone). One that raises sets `stop`, and is thrown once
// the work has ended; else what the work threw is thrown. Throws InputError if it is called by a
// work's own thread, which would wait for itself.
void run_interruptible(const std::function<void()>& work, std::atomic<bool>& stop);

// For threads of such a work: has the thread that called run_interruptible do `call`, with the
// interpreter's lock, and waits for it; one call at a time. There Python delivers signals, and code
// that wants to be on the main thread is. Throws what `call` throws, but an exception of Python
// ends the whole work: then, and if the work was stopped, Stopped (system/stop.hpp).
void on_calling_thread(const std::function<void()>& call);

}  // namespace kvbench::python
