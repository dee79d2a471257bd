"""What each mistake is, in words a reader of the book understands without the kernel."""

from __future__ import annotations

_SHARED = {
    "fence_of_the_cta_before_load": "a fence of the CTA in place of the barrier before a row is read",
    "fence_of_the_cta_before_store": "a fence of the CTA in place of the barrier before a row is overwritten",
    "fence_of_the_gpu_before_load": "a fence of the GPU in place of the barrier before a row is read",
    "fence_of_the_gpu_before_store": "a fence of the GPU in place of the barrier before a row is overwritten",
    "volatile_load_before_load": "an unrelated volatile load in place of the barrier before a row is read",
    "volatile_load_before_store": "an unrelated volatile load in place of the barrier before a row is overwritten",
    "sync_warp_before_load": "sync_warp in place of sync_threads before a row is read",
    "sync_warp_before_store": "sync_warp in place of sync_threads before a row is overwritten",
    "bytes_read_too_early": "no barrier before single bytes are read",
    "bytes_written_too_early": "no barrier before single bytes are overwritten",
    "upper_half_read_too_early": "no barrier between two warps that write the halves of a word and read each other's",
    "two_warps_write": "no barrier between two warps that write the same row",
    "one_barrier_for_two_pairs": "two pairs of warps meet at a barrier of the same number, and nothing orders them",
    "only_the_last_reader_releases": "a place is refilled when only the last of its four readers has given it back",
    "only_the_first_reader_releases": "a place is refilled when only the first of its four readers has given it back",
    "store_before_an_atomic": "no barrier between setting counters to zero and counting with atomics",
    "load_after_an_atomic": "no barrier between counting with atomics and reading the counters",
    "lock_taken_relaxed": "a lock taken without acquire",
    "lock_freed_relaxed": "a lock freed without release",
    "no_lock": "a sum updated by four warps without the lock",
    "exited_warp": "a warp exits with its row stored, and the barrier of the other three stands for it",
    "two_ctas_write": "two CTAs of a cluster write one place in one CTA's shared memory",
    "no_arrival_after_remote_store": "a relaxed arrival behind stores to another CTA",
    "remote_row_overwritten": "no wait before a row in another CTA is overwritten",
}

_LANES = {
    "no_sync_warp_before_load": "no sync_warp before a neighbour's number is read",
    "no_sync_warp_before_store": "no sync_warp before a number that a neighbour reads is overwritten",
    "shuffle_instead_of_sync_warp": "a shuffle in place of sync_warp",
    "shuffle_instead_of_sync_warp_before_store": "a shuffle in place of `sync_warp`, before what lanes have loaded is "
    "overwritten",
    "elect_instead_of_sync_warp": "elect_one in place of sync_warp",
    "no_sync_warp_between_branches": "no sync_warp between lanes that store in one branch and load in the next",
    "other_half_of_the_warp_read": "a number of the other half of the warp is read behind a `sync_warp` of one half",
    "no_sync_warp_behind_the_wait_for_copies": "a lane reads what another lane of its warp copied with `cp.async`; "
    "each has waited, and they have not met since",
    "elected_lane_arrives_for_stores": "an elected lane arrives for the warp's stores, without sync_warp before",
    "elected_lane_arrives_for_loads": "an elected lane arrives for the warp's loads, without sync_warp before",
}

_MEMORY = {
    "warps_of_one_cta": "no barrier between warps of a CTA that exchange a row",
    "flag_relaxed": "a flag raised without release",
    "flag_of_the_cta": "a flag for another CTA raised with a release at the scope of the CTA",
    "flag_read_relaxed": "a flag awaited without acquire",
    "flag_before_the_others_wrote": "a flag raised before the CTA's other warps have written",
    "one_thread_waits": "one thread waits for the flag, and no barrier has the others wait for it",
    "nobody_waits": "nobody waits for the flag",
    "flag_plain": "a flag raised by an ordinary store",
    "no_fence_before_the_flag": "a relaxed flag without the fence before it",
    "no_fence_behind_the_flag": "a relaxed flag without the fence behind the wait",
    "fence_of_the_cta_before_the_flag": "a relaxed flag for another CTA behind a fence of the CTA",
    "fence_of_the_cta_behind_the_flag": "a fence of the CTA behind the wait for another CTA's flag",
    "volatile_flag_without_fence": "a flag awaited with volatile loads, without the fence behind them",
    "nobody_waits_for_the_turn": "split-K: no CTA waits for its turn to add",
    "one_thread_waits_for_the_turn": "split-K: one thread waits for the turn, and no barrier has the others wait",
    "turn_before_the_others_added": "split-K: the turn is passed on before the CTA's other warps have added",
    "turn_relaxed": "split-K: the turn is passed on without release",
    "part_not_waited_for": "stream-K: the parts in the workspace are not waited for",
    "part_announced_relaxed": "stream-K: a part is announced without release",
    "part_announced_too_early": "stream-K: a part is announced before all warps have stored it",
    "mutex_taken_relaxed": "a lock between CTAs taken without acquire",
    "mutex_freed_relaxed": "a lock between CTAs freed without release",
    "mutex_freed_by_the_first": "a lock between CTAs freed before all warps have stored",
    "mutex_left_out": "a row updated by several CTAs without the lock",
    "grid_without_first_fence": "a grid barrier without the fence before the arrival",
    "grid_without_second_fence": "a grid barrier without the fence behind the wait",
    "grid_without_wait": "a grid barrier that nobody waits at",
    "grid_without_first_barrier": "a grid barrier without sync_threads before the arrival",
    "grid_without_second_barrier": "a grid barrier without sync_threads behind the wait",
    "state_before_the_number": "look-back scan: a CTA's state says that its number is there before it is",
    "state_before_the_prefix": "look-back scan: a CTA's state says that its prefix is there before it is",
    "prefix_relaxed": "look-back scan: the prefix is announced without release",
    "state_read_relaxed": "look-back scan: the state is read without acquire",
    "ticket_without_first_fence": "the last CTA adds the parts: no fence before the ticket is drawn",
    "ticket_without_second_fence": "the last CTA adds the parts: no fence behind the ticket",
    "ticket_before_the_others_wrote": "the last CTA adds the parts: a ticket drawn before all warps have stored",
    "two_ctas_write_a_row": "two CTAs write different values to one row",
    "two_ctas_write_a_byte": "two CTAs write different values to one byte",
    "sums_without_atomics": "CTAs add to one row without atomics",
    "sums_within_the_cta": "CTAs add to one row with atomics at the scope of the CTA",
}

_PROXIES = {
    "stores_before_tma_load": "no proxy fence between ordinary stores and a TMA load of the same global memory",
    "stores_before_tma_load_fence_of_the_gpu": "a fence of the GPU in place of the proxy fence before a TMA load",
    "stores_before_tma_load_wrong_space": "a proxy fence for shared memory before a TMA load of global memory",
    "no_barrier_before_tma_load": "a TMA load of what another warp writes, without a barrier",
    "tma_store_not_waited_for": "global memory is read while a TMA store may still write it",
    "tma_store_waited_for_reading": "a wait for a TMA store to have read its source, then a load of its result",
    "one_warp_waits_for_tma_store": "one warp waits for a TMA store, another reads the result without a barrier",
    "one_warp_without_proxy_fence": "one warp alone: no proxy fence between its stores and its TMA store",
    "one_warp_with_the_global_proxy_fence": "one warp alone: a proxy fence for global memory before its TMA store",
    "one_warp_without_sync_warp": "one warp alone: no sync_warp between its lanes' stores and its TMA store",
    "one_warp_without_wait": "one warp alone: a buffer is refilled while its TMA store may still read it",
    "two_ctas_store_a_box": "two CTAs store the same box with TMA",
    "map_changed_under_a_store": "a tensor map is changed while a TMA store may still use it",
    "map_not_yet_out": "a changed tensor map is used by another warp without a barrier",
    "map_not_free": "a tensor map is changed without a barrier behind its user",
    "map_without_acquire": "a changed tensor map is used without fence_tma_desc_acquire",
    "map_copied_before_it_is_changed": "a tensor map is copied out without sync_warp behind the lane that changes it",
    "tile_overwritten_while_tma_loads_it": "ordinary stores over a tile in global memory that TMA may still load",
    "tile_stored_while_another_cta_loads_it": "a TMA store over a tile that another CTA may still load",
    "map_in_place_without_release": "a tensor map changed in global memory, without the releasing fence",
    "map_in_place_without_acquire": "a tensor map changed in global memory, without the acquiring fence",
}

_MBARRIERS = {
    "arrival_relaxed": "a relaxed arrival hands over what was stored",
    "arrival_relaxed_without_fence": "a relaxed arrival without the fence before it",
    "remote_arrival_with_the_scope_of_the_cta": "an arrival at another CTA's mbarrier, with the scope of the CTA, "
    "hands over what was stored",
    "remote_arrival_relaxed": "a relaxed arrival at another CTA's mbarrier hands over what was stored",
    "remote_arrival_relaxed_after_a_fence_of_the_cta": "the fence before a relaxed arrival at another CTA's mbarrier "
    "has the scope of the CTA",
    "copy_passed_on_with_the_scope_of_the_cta": "an arrival at another CTA's mbarrier, with the scope of the CTA, "
    "hands over what cp.async has copied",
    "exit_when_one_lane_of_each_warp_has_read":
        "a CTA exits when one lane of each warp of the other CTA says that it has read, without sync_warp before",
    "mbarrier_of_a_lane_that_the_others_have_not_met":
        "lanes arrive at an mbarrier that another lane of their warp has initialised, without sync_warp before",
    "exit_when_one_warp_has_read": "a CTA exits when one warp of the other CTA has read, and the others still may",
    "remote_reader_is_not_waited_for": "a row is overwritten without waiting until the other CTA has read it",
    "cluster_arrival_relaxed": "a relaxed arrival at the cluster's barrier hands over what was stored",
    "cluster_arrival_relaxed_after_a_fence_of_the_cta": "the fence before a relaxed arrival at the cluster's barrier "
    "has the scope of the CTA",
    "cluster_arrival_relaxed_without_fence": "a relaxed arrival at the cluster's barrier without the fence before it",
    "two_phases_ahead": "a producer runs two phases ahead of a waiter, who knows only parities",
    "one_mbarrier_for_two_buffers": "one mbarrier for two buffers: a phase is over before it is waited for",
    "store_over_an_mbarrier": "an ordinary store over a live mbarrier",
    "copy_over_an_mbarrier": "a bulk copy over a live mbarrier",
    "mbarrier_initialised_twice": "an mbarrier initialised again without mbarrier.inval",
    "fence_of_another_warp": "the fence behind mbarrier.init, executed by a warp that has not initialised it",
}

_WAITS = {
    "relaxed_wait_without_fence": "a relaxed wait for an mbarrier, without a fence behind it",
    "relaxed_wait_for_a_copy_without_fence": "a relaxed wait for a copy's mbarrier, without a fence behind it",
    "relaxed_wait_with_a_proxy_fence": "a proxy fence in place of the fence behind a relaxed wait",
    "one_lane_waits_for_its_warp": "one lane waits for an mbarrier, and its warp goes on without sync_warp",
    "one_lane_waits_before_a_shuffle": "one lane waits for an mbarrier, and a shuffle stands in place of sync_warp",
    "one_lane_waits_before_a_vote": "one lane waits for an mbarrier, and a vote stands in place of sync_warp",
    "another_lane_copies": "one lane waits for a row, and another one of its warp has it copied out",
    "one_lane_waits_for_a_bulk_store": "one lane waits for its bulk store, and its warp overwrites the source",
    "one_lane_waits_for_a_flag": "one lane waits for a flag, and its warp goes on without sync_warp",
    "one_lane_waits_for_a_flag_before_a_shuffle": "one lane waits for a flag, and a shuffle in place of sync_warp",
    "store_behind_a_copys_arrival": "a store behind cp.async's arrival at an mbarrier, which does not pass it on",
    "own_copy_not_waited_for": "a thread reads what it copies with cp.async, whose arrival it does not wait for",
    "read_only_load_of_a_written_row": "a load through the read-only cache of what the kernel has written",
    "sums_of_the_cta": "CTAs add to the same numbers with atomics of the scope of a CTA",
    "sums_of_the_cta_and_the_gpu": "atomics of the CTA, then of the GPU, on the same numbers",
    "sums_of_the_gpu_and_the_cta": "atomics of the GPU, then of the CTA, on the same numbers",
    "async_store_not_waited_for": "what st.async stores in another CTA is read without a wait for its mbarrier",
}

_OTHERS = {
    "second_kernel_does_not_wait": "programmatic launch: the second kernel reads without griddepcontrol.wait",
    "second_kernel_waits_too_late": "programmatic launch: the second kernel reads before griddepcontrol.wait",
    "second_kernel_reads_only_and_does_not_wait": "programmatic launch: a read-only load without griddepcontrol.wait",
    "waits_for_wgmma_only": "a wait for WGMMA in place of the barrier for what other warps have stored",
    "epilogue_over_a_stage": "an epilogue over a stage that another warpgroup's WGMMA may still read",
    "epilogue_over_a_stage_after_half_a_barrier": "an epilogue over such a stage behind a barrier of its own warpgroup",
}

WORDS: dict[str, str] = _SHARED | _LANES | _MEMORY | _PROXIES | _MBARRIERS | _WAITS | _OTHERS
