"""The verdict: facts about the subject, the diagnosis, its sentences and the advice."""
