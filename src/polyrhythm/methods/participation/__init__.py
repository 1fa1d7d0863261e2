"""Who is invited now, and on which version?"""
